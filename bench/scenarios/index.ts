/** Every scenario, in the order they run. */
import type { Scenario } from '../lib/types.ts';
import { apiScenarios } from './api.ts';
import { faultScenarios } from './faults.ts';
import { hotScenarios } from './hot.ts';
import { quietScenarios } from './quiet.ts';

export const SCENARIOS: readonly Scenario[] = [
  ...apiScenarios,
  ...hotScenarios,
  ...faultScenarios,
  ...quietScenarios,
];

/** Query parameters that lists of deliveries and of dead letters share. */
import { z } from '@hono/zod-openapi';
import { OUTCOME_CLASSES, type OutcomeClass } from '../domain/classes.ts';
import { eventType, id, time } from './schemas.ts';

const CLASSES = Object.keys(OUTCOME_CLASSES) as [OutcomeClass, ...OutcomeClass[]];

export const DELIVERY_FILTERS = {
  endpoint: id('ep').optional(),
  event: z
    .string()
    .regex(/^[A-Za-z0-9_-]{1,64}$/, 'must be an event id')
    .optional(),
  type: eventType.optional(),
  status: z
    .string()
    .regex(/^[1-9]\d\d$/, 'must be an HTTP status, 100 to 999')
    .transform(Number)
    .optional()
    .openapi({ type: 'integer', description: 'Of the last attempt' }),
  class: z.enum(CLASSES).optional().openapi({ description: 'Of the last attempt' }),
  since: time.optional(),
  until: time.optional(),
};

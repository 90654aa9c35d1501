/**
 * What an outcome class says and what follows from it, in closed words. The rows of classes.ts pick one policy each;
 * decide.ts acts on the pace, endpoint health on the evidence.
 */

/** The steps of an attempt, in order. `policy` is before any packet, `body` after the status line. */
export const PHASES = [
  'policy',
  'queued',
  'dns',
  'tcp',
  'proxy',
  'tls',
  'sent',
  'headers',
  'body',
  'none',
] as const;

/** `none`: no attempt took place or its worker never reported. */
export type Phase = (typeof PHASES)[number];

/** Who has to act. `network` is everything between us and the receiver, the egress proxy included. */
export type Whose = 'receiver' | 'sender' | 'network' | 'policy';

/**
 * How the delivery goes on. What a receiver asks for with Retry-After comes on top, and takes the place of `slower` and
 * `minute`: who says when is taken at its word.
 *   never    it ends here
 *   normal   the next step of its schedule
 *   slower   the same, growing three times instead of twice per step, and at least a minute
 *   minute   the same, but at least a minute: a receiver that is still at work must not get it twice at once
 *   soon     a few seconds, whatever the schedule: nothing was wrong with the receiver
 */
export const PACES = ['never', 'normal', 'slower', 'minute', 'soon'] as const;
export type Pace = (typeof PACES)[number];

/**
 * Evidence about the endpoint, for its breaker and for disabling it.
 *   ok             it works
 *   failure        it is down: opens the breaker
 *   throttled      it is up and asks for less
 *   configuration  it is up and refuses what it is sent: never opens the breaker
 *   neutral        says nothing about it
 */
export const HEALTHS = ['ok', 'failure', 'throttled', 'configuration', 'neutral'] as const;
export type Health = (typeof HEALTHS)[number];

/**
 * What follows from an attempt. `burnsAttempt`: it counts against max attempts. A fault of ours burns nothing and says
 * nothing about the endpoint.
 */
export interface Policy {
  readonly pace: Pace;
  readonly burnsAttempt: boolean;
  readonly health: Health;
}

export const ILL: Policy = { pace: 'normal', burnsAttempt: true, health: 'failure' };
/** It is up and wants less. */
export const THROTTLED: Policy = { pace: 'slower', burnsAttempt: true, health: 'throttled' };
/** A gateway that found nobody behind it, or not in time. */
export const GATEWAY: Policy = { pace: 'slower', burnsAttempt: true, health: 'failure' };
export const SLOW: Policy = { pace: 'minute', burnsAttempt: true, health: 'failure' };
export const REFUSED: Policy = { pace: 'normal', burnsAttempt: true, health: 'configuration' };
export const NOT_NOW: Policy = { pace: 'minute', burnsAttempt: true, health: 'neutral' };
export const BLOCKED: Policy = { pace: 'normal', burnsAttempt: true, health: 'neutral' };
export const FINAL: Policy = { pace: 'never', burnsAttempt: true, health: 'neutral' };
/** A fault of ours with a request that the receiver may have. */
export const OURS_SENT: Policy = { pace: 'minute', burnsAttempt: false, health: 'neutral' };
export const OURS: Policy = { pace: 'soon', burnsAttempt: false, health: 'neutral' };

/** What `posthaste/receiver` exports: for those who receive webhooks. */
export {
  type HeaderSource,
  type VerificationCode,
  VerificationError,
  type VerifiedWebhook,
  type VerifyInput,
  verify,
} from './verify.ts';

/** The mail server as one function. Called by src/engine.ts, which hands it to src/relay/notices.ts. */
import { createTransport } from 'nodemailer';
import type { Mail } from './domain/notice-mail.ts';
import type { SendMail } from './relay/notices.ts';

/** A server that does not answer must not hold the chore for long; a healthy one needs seconds at most. */
const TIMEOUTS = {
  connectionTimeout: 10_000,
  greetingTimeout: 10_000,
  socketTimeout: 20_000,
  dnsTimeout: 5_000,
};

/** @param from `address` or `Name <address>`, checked by src/config.ts. */
export function createMail(smtpUrl: string, from: string): { send: SendMail; close(): void } {
  const mailbox = /^(?:(.*) <)?([^<>]+?)>?$/.exec(from);
  const sender = { name: mailbox?.[1] ?? '', address: mailbox?.[2] ?? from };
  const transport = createTransport({ url: smtpUrl, ...TIMEOUTS });
  return {
    async send(to: string, id: string, mail: Mail) {
      try {
        await transport.sendMail({
          // As objects and with the envelope said outright: addresses are never parsed out of text.
          from: sender,
          to: { name: '', address: to },
          envelope: { from: sender.address, to: [to] },
          messageId: `<${id}@${sender.address.split('@')[1]}>`,
          subject: mail.subject,
          text: mail.text,
          html: mail.html,
          headers: { 'auto-submitted': 'auto-generated', 'x-auto-response-suppress': 'All' },
          disableFileAccess: true,
          disableUrlAccess: true,
        });
        return 'sent';
      } catch (error) {
        // 5xx about the recipient is final. Anything else (login, sender, size) is the operator's to mend.
        if (isFinal(error)) return 'refused';
        throw error;
      }
    },
    close: () => transport.close(),
  };
}

function isFinal(error: unknown): boolean {
  const { code, command, responseCode } = error as { code?: string; command?: string; responseCode?: number };
  if (code !== 'EENVELOPE') return false;
  // `API`: the library did not even ask, since no server could take such an address.
  return command === 'API' || (command === 'RCPT TO' && (responseCode ?? 0) >= 500);
}

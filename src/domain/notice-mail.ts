/**
 * The words of the mail that tells people of an endpoint's health: subject, text, HTML. Called by src/relay/notices.ts.
 * Names, hosts and classes come from tenants and receivers: they are made one line, and escaped in HTML. No links: what
 * looks like a mail of ours with another address in it should be suspicious.
 */

export interface NoticeFacts {
  readonly kind: string; // one of MAILED_KINDS
  readonly endpoint: string;
  readonly tenant: string;
  readonly tenantName: string | null;
  readonly host: string;
  readonly at: string; // RFC 3339
  readonly reason: string;
  readonly disabledReason: string | null;
  readonly since: string | null;
  readonly until: string | null; // next probe, or end of the pause
  readonly lastStatus: number | null;
  readonly lastClass: string | null;
  readonly held: number;
}

export interface Mail {
  readonly subject: string;
  readonly text: string;
  readonly html: string;
}

interface Words {
  title: string;
  /** What happened and what happens next; a paragraph each. */
  says: string[];
}

/** Control characters, line and paragraph separators, and what turns the direction of writing. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u2028\u2029\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]+/g;

/** On one line, at most `max` characters. */
export function oneLine(text: string, max = 120): string {
  const line = text.replace(UNSEEN, ' ').trim();
  return [...line].length <= max ? line : `${[...line].slice(0, max - 1).join('')}…`;
}

const ESCAPES: Record<string, string> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
};
export const escapeHtml = (text: string): string => text.replace(/[&<>"']/g, (c) => ESCAPES[c] as string);

const RECOVER =
  'Nothing of what was sent to it meanwhile is lost: after the cause is mended, enable the endpoint again and ask for a replay of what it missed.';

function wordsOf(facts: NoticeFacts, host: string): Words {
  switch (facts.kind) {
    case 'notice_24h':
      return {
        title: `Webhook endpoint ${host} has been failing for a day`,
        says: [
          'No delivery to this endpoint has succeeded for 24 hours. Deliveries wait and are tried again.',
          'If it goes on, we write once more after 72 hours, and disable the endpoint after 5 days.',
        ],
      };
    case 'notice_72h':
      return {
        title: `Webhook endpoint ${host} has been failing for three days`,
        says: [
          'No delivery to this endpoint has succeeded for 72 hours. The oldest deliveries are given up about now.',
          'If it goes on, the endpoint is disabled 5 days after the failures began.',
        ],
      };
    case 'disabled':
      return {
        title: `Webhook endpoint ${host} was disabled`,
        says: [
          facts.disabledReason === 'gone'
            ? 'It answered 410 Gone, which says that nothing should be sent to it any more. Nothing is.'
            : 'No delivery to it has succeeded for 5 days. Nothing is sent to it any more.',
          RECOVER,
        ],
      };
    case 'misconfigured':
      return {
        title: `Webhook endpoint ${host} refuses every delivery`,
        says: [
          'It has answered every delivery of the last ten minutes or more with an error that says the request is wrong (4xx). Most often the URL, the authentication or the check of the signature has changed.',
          'Deliveries wait, and one is tried now and then. A change of the endpoint’s settings is tried at once.',
        ],
      };
    case 'paused_long':
      return {
        title: `Webhook endpoint ${host} asked for a long pause`,
        says: [
          'It asked, by Retry-After, not to be sent anything for more than an hour. Deliveries wait until then; resume the endpoint to send them sooner.',
        ],
      };
    default:
      return {
        title: `Webhook endpoint ${host} works again`,
        says: ['Deliveries succeed again. What had waited has been sent, or is on its way.'],
      };
  }
}

export function noticeMail(facts: NoticeFacts): Mail {
  const host = oneLine(facts.host, 80);
  const { title, says } = wordsOf(facts, host);
  const name = facts.tenantName === null ? '' : oneLine(facts.tenantName);
  const last = [facts.lastStatus, facts.lastClass].filter((part) => part !== null).join(' ');
  const known: [string, string | null][] = [
    ['Endpoint', `${facts.endpoint} (${host})`],
    ['Account', name === '' || name === facts.tenant ? facts.tenant : `${name} (${facts.tenant})`],
    ['When', facts.at],
    ['Why', facts.reason === '' ? null : oneLine(facts.reason)],
    ['Failing since', facts.kind === 'recovered' ? null : facts.since],
    ['Last answer', last === '' || facts.kind === 'recovered' ? null : oneLine(last)],
    [facts.kind === 'paused_long' ? 'Paused until' : 'Tried again at', facts.until],
    ['Waiting deliveries', facts.held === 0 ? null : facts.held >= 1_000 ? '1,000 or more' : `${facts.held}`],
  ];
  const lines = known.filter((line): line is [string, string] => line[1] !== null);
  const rows = lines.map(
    ([label, value]) =>
      `<tr><td style="padding:2px 16px 2px 0;color:#555">${label}</td><td>${escapeHtml(value)}</td></tr>`,
  );
  return {
    subject: title,
    text: `${title}\n\n${says.join('\n\n')}\n\n${lines.map(([label, value]) => `${label}: ${value}`).join('\n')}\n`,
    html: `<!doctype html><html lang="en"><body style="font-family:sans-serif"><h1 style="font-size:18px">${escapeHtml(title)}</h1>${says
      .map((paragraph) => `<p>${escapeHtml(paragraph)}</p>`)
      .join('')}<table style="border-collapse:collapse">${rows.join('')}</table></body></html>`,
  };
}

/**
 * The Retry-After header, leniently produced by receivers and strictly read by us: what is not in the grammar
 * is ignored and the own schedule applies. Called when a failed attempt is planned anew. Seconds.
 */

/** The most a receiver can ask for: 24 h. */
export const RETRY_AFTER_CAP_SECONDS = 86_400;

const MONTHS = ['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec'];
const DAY = '(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)';
const DAY_LONG = '(?:Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday)';
const TIME = '(\\d\\d):(\\d\\d):(\\d\\d)';
// RFC 9110 section 5.6.7: IMF-fixdate, then the two obsolete forms.
const IMF = new RegExp(`^${DAY}, (\\d\\d) (\\w{3}) (\\d{4}) ${TIME} GMT$`);
const RFC850 = new RegExp(`^${DAY_LONG}, (\\d\\d)-(\\w{3})-(\\d\\d) ${TIME} GMT$`);
const ASCTIME = new RegExp(`^${DAY} (\\w{3}) ([ \\d]\\d) ${TIME} (\\d{4})$`);

/**
 * How long the endpoint must be left alone: what it asked for, a day at the most.
 * @param value the header as received; optional spaces around it are allowed.
 * @param nowMs the receiver's response time, epoch milliseconds.
 * @returns whole seconds from now, 0 to 86,400; null when the header is to be ignored.
 * Source: RFC 9110 section 10.2.3 (delay-seconds = 1*DIGIT, or an HTTP-date). A weekday is not verified.
 */
export function parseRetryAfter(value: string, nowMs: number): number | null {
  const asked = askedSeconds(value, nowMs);
  return asked === null ? null : Math.min(asked, RETRY_AFTER_CAP_SECONDS);
}

/** The same without the cap: what the receiver said, however long. Called by the API to explain an attempt. */
export function askedSeconds(value: string, nowMs: number): number | null {
  const text = value.replace(/^[ \t]+|[ \t]+$/g, '');
  if (/^\d+$/.test(text)) return Number(text);
  const at = parseHttpDate(text, nowMs);
  return at === null ? null : Math.max(Math.ceil((at - nowMs) / 1000), 0);
}

function parseHttpDate(text: string, nowMs: number): number | null {
  const imf = IMF.exec(text);
  if (imf) return utc(imf[3], imf[2], imf[1], imf[4], imf[5], imf[6]);
  const asctime = ASCTIME.exec(text);
  if (asctime) return utc(asctime[6], asctime[1], asctime[2], asctime[3], asctime[4], asctime[5]);
  const old = RFC850.exec(text);
  if (!old) return null;
  // A two-digit year more than 50 years ahead means the past century.
  const thisYear = new Date(nowMs).getUTCFullYear();
  let year = Math.floor(thisYear / 100) * 100 + Number(old[3]);
  if (year > thisYear + 50) year -= 100;
  return utc(String(year), old[2], old[1], old[4], old[5], old[6]);
}

function utc(
  year: string | undefined,
  monthName: string | undefined,
  day: string | undefined,
  hour: string | undefined,
  minute: string | undefined,
  second: string | undefined,
): number | null {
  const month = MONTHS.indexOf(monthName ?? '');
  const h = Number(hour);
  const m = Number(minute);
  const s = Number(second);
  // 60 is a leap second.
  if (month < 0 || h > 23 || m > 59 || s > 60) return null;
  const date = new Date(0);
  date.setUTCFullYear(Number(year), month, Number(day));
  if (date.getUTCMonth() !== month || date.getUTCDate() !== Number(day)) return null;
  return date.getTime() + ((h * 60 + m) * 60 + s) * 1000;
}

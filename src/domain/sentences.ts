/** Times and durations as people read them. Called by rules.ts and outlook.ts. Always UTC: a server has no other. */

const DAYS = ['Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday'];
const MONTHS = ['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec'];

/** "Thursday 3 Dec 14:00:05 UTC". @param ms epoch milliseconds */
export function clockTime(ms: number): string {
  const at = new Date(ms);
  const [hour, minute, second] = [at.getUTCHours(), at.getUTCMinutes(), at.getUTCSeconds()].map((part) =>
    String(part).padStart(2, '0'),
  );
  return `${DAYS[at.getUTCDay()]} ${at.getUTCDate()} ${MONTHS[at.getUTCMonth()]} ${hour}:${minute}:${second} UTC`;
}

const UNITS = [
  ['d', 86_400_000],
  ['h', 3_600_000],
  ['min', 60_000],
  ['s', 1_000],
] as const;

/** "3 d", "1.5 h", "30 s", "10 ms": the largest unit that is not below one, to a tenth. */
export function duration(ms: number): string {
  const [unit, size] = UNITS.find(([, length]) => ms >= length) ?? (['ms', 1] as const);
  return `${Math.round((ms / size) * 10) / 10} ${unit}`;
}

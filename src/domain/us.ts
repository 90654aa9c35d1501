/**
 * Is it us? When many endpoints that share nothing fail at once, the likeliest common cause is our own network. Called by
 * the health step before it reduces. The answer only asks for the self-check (known-good targets, DNS, proxy): trips
 * freeze when that fails too, because half the internet can also break without us (a CDN, a cloud region).
 */

/** An endpoint whose requests failed within the last minute without a single 2xx among them. */
export interface FailingEndpoint {
  readonly domain: string; // host name of its URL
  readonly address: string; // where it was last connected or resolved to; '' when unknown
}

/** Suspicion needs a share of those that were sent to in the last minute, and a number that chance does not reach… */
const SHARE = 0.2;
const MANY = 50;
/** …or, in a small installation, nearly everyone and at least this many. */
const NEARLY_ALL = 0.9;
const FEW = 5;

/** Second-level names under which customers register, so that two shops in co.uk are not one site. */
const SHARED_SECOND_LEVEL = new Set(['ac', 'co', 'com', 'edu', 'gov', 'gob', 'ne', 'net', 'or', 'org']);

/** The name someone registered, roughly: `hooks.shop.example` → `shop.example`, `a.shop.co.uk` → `shop.co.uk`. */
export function siteOf(host: string): string {
  const name = host.toLowerCase().replace(/\.$/, '');
  if (name.includes(':') || /^[\d.]+$/.test(name)) return networkOf(name);
  const labels = name.split('.');
  const last = labels.at(-1) ?? '';
  const second = labels.at(-2) ?? '';
  const deep = last.length === 2 && SHARED_SECOND_LEVEL.has(second);
  return labels.slice(deep ? -3 : -2).join('.');
}

/** The neighbourhood of an address: IPv4 /24, IPv6 /48. One rack that fails is one cause. */
export function networkOf(address: string): string {
  if (!address.includes(':')) return address.split('.').slice(0, 3).join('.');
  const [head = '', tail] = address.toLowerCase().split('::');
  const left = head === '' ? [] : head.split(':');
  const right = tail === undefined || tail === '' ? [] : tail.split(':');
  const zeros = tail === undefined ? 0 : Math.max(0, 8 - left.length - right.length);
  const groups = [...left, ...new Array<string>(zeros).fill('0'), ...right];
  return groups
    .slice(0, 3)
    .map((group) => group.replace(/^0+(?=.)/, ''))
    .join(':');
}

/**
 * Whether the self-check should run. `independent` counts failing endpoints no two of which share a site or a network;
 * greedy, so it may be a little low, never high.
 * @param failing of the last minute. @param active endpoints that were sent to in the last minute, `failing` included.
 */
export function suspectUs(
  failing: readonly FailingEndpoint[],
  active: number,
): { suspect: boolean; independent: number } {
  const sites = new Set<string>();
  const networks = new Set<string>();
  let independent = 0;
  for (const { domain, address } of failing) {
    const site = siteOf(domain);
    // An endpoint that never resolved has no network: its site must do.
    const network = address === '' ? `?${site}` : networkOf(address);
    if (sites.has(site) || networks.has(network)) continue;
    sites.add(site);
    networks.add(network);
    independent++;
  }
  const wide = independent >= MANY && failing.length >= SHARE * active;
  const all = independent >= FEW && failing.length >= NEARLY_ALL * active;
  return { suspect: wide || all, independent };
}

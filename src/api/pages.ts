/** The two pages that need no key. They hold no data and no script. */
import { PROBLEMS } from '../errors.ts';

const STYLE =
  'body{font:16px/1.5 system-ui,sans-serif;max-width:44rem;margin:3rem auto;padding:0 1rem}code{background:#eee;padding:0 .2em}dt{margin-top:1em}';

export function indexPage(): string {
  return html(
    'Posthaste',
    `<h1>Posthaste</h1>
<p>Webhooks, delivered: signed, at least once, for up to three days, with every attempt on record.</p>
<p>This is the HTTP API. Everything below <code>/v1</code> needs a key: <code>Authorization: Bearer phk_…</code></p>
<ul>
<li><a href="/openapi.json">openapi.json</a>, every operation, for tools</li>
<li><a href="/problems">Problems</a>, what each error code means</li>
<li><a href="/readyz">readyz</a>, whether it can do its work</li>
</ul>
<p>The guide to the API is <code>docs/api.md</code> in the source.</p>`,
  );
}

export function problemsPage(): string {
  const items = Object.entries(PROBLEMS).map(
    ([code, [status, title, advice]]) =>
      `<dt id="${code}"><code>${code}</code> · ${status} · ${escaped(title)}</dt><dd>${escaped(advice)}</dd>`,
  );
  return html('Posthaste: problems', `<h1>Problems</h1><dl>${items.join('\n')}</dl>`);
}

function html(title: string, body: string): string {
  return `<!doctype html><html lang="en"><head><meta charset="utf-8"><title>${title}</title><style>${STYLE}</style></head><body>${body}</body></html>\n`;
}

function escaped(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');
}

/** What the rows in view show, made when first needed and kept for a while. */

import { badges, pills } from "../data";
import { exactText } from "../data/clock";
import type { Row } from "../data/model/columns";
import type { Badge } from "../data/model/moment";
import type { TraceStore } from "../data/model/trace";
import { COUNT_MEANINGS } from "../data/shorthand";
import { milliseconds } from "../format";
import { plain } from "../text";
import type { RowContent } from "./textRows";

const KEPT = 800;

/** Short badges share lines; then what was held, which one looks for; then the long lines about memory. */
const PLACE: Record<Badge["kind"], number> = {
  count: 0,
  pinned: 1,
  tokens: 2,
  recomputed: 3,
  cached: 4,
  recorded: 5,
  blocked: 6,
  vram: 7,
  dram: 8,
};

export class Contents {
  private readonly rows = new Map<Row, RowContent>();
  private key = -1;
  private version = -1;

  /** The content of a row if it is at hand. */
  peek(store: TraceStore, row: Row): RowContent | null {
    this.renew(store);
    return this.rows.get(row) ?? null;
  }

  get(store: TraceStore, row: Row): RowContent {
    const found = this.peek(store, row);
    if (found) return found;
    if (this.rows.size >= KEPT) this.rows.clear();
    const made = contentOf(store, row);
    this.rows.set(row, made);
    return made;
  }

  private renew(store: TraceStore): void {
    if (store.key === this.key && store.version === this.version) return;
    this.rows.clear();
    this.key = store.key;
    this.version = store.version;
  }
}

export function contentOf(store: TraceStore, row: Row): RowContent {
  const { steps } = store;
  const all = pills(store, row);
  const reason = store.shown[steps.shown[row]];
  for (const list of [all.running, all.waiting]) {
    for (const pill of list) {
      pill.label = plain(pill.label);
      pill.short = plain(pill.short);
    }
  }
  return {
    step: steps.number[row].toLocaleString("en-US"),
    ...times(store, row),
    badges: badges(store, row)
      .flatMap(shownBadges)
      .sort((a, b) => PLACE[a.kind] - PLACE[b.kind]),
    ...all,
    family: reason.family,
    blocked: reason.blocked,
  };
}

/** Counts stand as words of their own, so that zeros can step back; the flame is drawn, for want of fonts that have it. */
function shownBadges(badge: Badge): Badge[] {
  const label = plain(badge.label.replace(/\s*🔥/u, ""));
  if (badge.kind !== "count") return [{ ...badge, label }];
  return label.split(" ").map((word) => ({ ...badge, label: word, title: COUNT_MEANINGS[word.split(":")[0]] ?? "" }));
}

/** When it began, and how long after the step before. */
export function times(store: TraceStore, row: Row): { elapsed: string; delta: string } {
  const { ts } = store.steps;
  const delta = row > 0 ? ts[row] - ts[row - 1] : Number.NaN;
  return {
    elapsed: exactText(store, ts[row]),
    delta: Number.isFinite(delta) ? `+${milliseconds(delta)}` : "",
  };
}

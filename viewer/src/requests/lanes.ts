/** Lanes made ready to draw, and kept while they are in sight. */

import { isNarrow } from "../charts/touches";
import { shortId } from "../data/labels";
import type { RequestIndex } from "../data/model/columns";
import type { Lanes } from "../data/model/lives";
import type { TraceStore } from "../data/model/trace";
import { count, milliseconds } from "../format";
import type { LaneTrait } from "./laneTrait";
import { type DrawnLane, drawn } from "./paint";

const KEPT = 600;
const LABEL_CHARACTERS = isNarrow() ? 6 : 16;

/** A cache of drawn lanes: one per `Lanes` object, since a new one means new data. */
export class LaneCache {
  private readonly found = new Map<number, DrawnLane>();

  constructor(
    readonly lanes: Lanes,
    private readonly trait: LaneTrait,
  ) {}

  at(lane: number): DrawnLane {
    let one = this.found.get(lane);
    if (one) return one;
    if (this.found.size >= KEPT) this.found.clear();
    one = this.make(lane);
    this.found.set(lane, one);
    return one;
  }

  private make(lane: number): DrawnLane {
    const made = this.lanes.lane(lane);
    const waited = milliseconds(this.lanes.waited[lane]);
    const turns = made.turns.length;
    const [trait, ...more] = new Set(made.turns.map(({ request }) => this.trait.text(request)));
    const of = trait && more.length === 0 ? [trait] : [];
    const many = turns > 1 ? [`${count(turns)} turns`] : [];
    const note = [[...of, ...many, waited], [...of, waited], [...many, waited], [waited]].map((all) => all.join(" · "));
    return drawn(made, shortId(made.label, LABEL_CHARACTERS), note);
  }
}

/** `t9`: the turn of a request within its job, as pills show it; else its number among the job's requests. */
export function turnText(store: TraceStore, request: RequestIndex): string {
  const id = store.requests.ids[request];
  const found = /_t(\d+)$/.exec(id.slice(-24));
  return found ? `t${found[1]}` : shortId(id, 8);
}

import { shortId } from "../data/labels";
import type { TraceStore } from "../data/model/trace";
import type { SideName } from "./goTo";

/** By what the two are distinguished besides A and B: their policies, else their names; "" if both are alike. */
export function sideWords(a: TraceStore, b: TraceStore): Record<SideName, string> {
  const words = (store: TraceStore) => shortId(a.policy !== b.policy ? store.policy : store.name, 24);
  return words(a) === words(b) ? { A: "", B: "" } : { A: words(a), B: words(b) };
}

interface SideHeadProps {
  a: TraceStore;
  b: TraceStore;
  side: SideName;
  class?: string;
}

/** Head of a column that tells of one of the two. */
export function SideHead({ a, b, side, ...more }: SideHeadProps) {
  const { policy, name } = side === "A" ? a : b;
  return (
    <th scope="col" title={`${shortId(policy, 60)}, ${shortId(name, 120)}`} {...more}>
      {side} <small>{sideWords(a, b)[side]}</small>
    </th>
  );
}

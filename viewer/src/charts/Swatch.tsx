import type { ReasonFamily } from "../data/model/reasons";
import { FAMILIES } from "../palette";

/** The colour of a family of reasons with its letter in it. The name stands beside it, so it is silent. */
export function Swatch({ family }: { family: ReasonFamily }) {
  return (
    <span
      class="swatch"
      aria-hidden="true"
      style={{ "--fill": `var(--family-${family})`, "--ink": `var(--family-${family}-ink)` }}
    >
      {FAMILIES[family].letter}
    </span>
  );
}

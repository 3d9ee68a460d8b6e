import type { ComponentChildren } from "preact";
import { Swatch } from "../charts/Swatch";
import { meaningOf } from "../data";
import { momentText } from "../data/clock";
import type { TraceStore } from "../data/model/trace";
import { rowsOf } from "../data/pressure";
import { duration, percent } from "../format";
import { goToReason } from "../state/moves";
import { loading, selection } from "../state/store";
import { middle } from "../text";
import type { Found } from "./OverviewView";

const SHOWN = 5;

/** Reasons, and worst stretches. */
export function Lists({ store, found }: { store: TraceStore; found: Found }) {
  return (
    <div class="overview-lists">
      <Reasons store={store} found={found} />
      <Stretches store={store} found={found} />
    </div>
  );
}

function Reasons({ store, found: { scoped } }: { store: TraceStore; found: Found }) {
  const reasons = scoped?.reasons ?? [];
  const total = reasons.reduce((sum, { lost }) => sum + lost, 0);
  return (
    <section aria-labelledby="overview-reasons">
      <h2 id="overview-reasons">
        What requests waited for <small>{selection.value ? "selection" : "whole run"}</small>
      </h2>
      {reasons.length === 0 ? (
        <p class="quiet">{!scoped ? "…" : loading.value ? "Nothing yet." : "Nothing."}</p>
      ) : (
        <ol class="overview-list">
          {reasons.slice(0, SHOWN).map(({ shown, lost }) => {
            const { name, family, recorded } = store.shown[shown];
            return (
              <li key={shown} title={meaningOf(name)}>
                <Swatch family={family} />
                <Entry onClick={() => goToReason(shown)} title={meaningOf(name)}>
                  {middle(name, 28)}
                </Entry>
                {!recorded && <span class="quiet">guessed</span>}
                <span class="number">{duration(lost)}</span>
                <span class="number quiet">{percent(lost / total)}</span>
              </li>
            );
          })}
        </ol>
      )}
    </section>
  );
}

function Stretches({ store, found: { stretches } }: { store: TraceStore; found: Found }) {
  if (stretches.length === 0) return null;
  return (
    <section aria-labelledby="overview-stretches">
      <h2 id="overview-stretches">
        Worst stretches <small>most waiting first, for all reasons</small>
      </h2>
      <ol class="overview-list">
        {stretches.map((stretch) => (
          <li key={stretch.first}>
            <Swatch family={store.shown[stretch.shown].family} />
            <Entry
              title="Select it: all figures are of it then"
              onClick={() => {
                selection.value = rowsOf(store, stretch);
              }}
            >
              {momentText(store, stretch.begin)}–{momentText(store, stretch.end)}
            </Entry>
            <span class="number">{duration(stretch.lost)}</span>
            <span class="number quiet">up to {Math.round(stretch.most)} held</span>
          </li>
        ))}
      </ol>
    </section>
  );
}

/** What a line of a list leads to. */
function Entry({ onClick, title, children }: { onClick(): void; title?: string; children: ComponentChildren }) {
  return (
    <button type="button" class="plain link" {...(title ? { title } : {})} onClick={onClick}>
      {children}
    </button>
  );
}

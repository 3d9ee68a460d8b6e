import type { ComponentChildren } from "preact";
import { Swatch } from "../charts/Swatch";
import { meaningOf } from "../data";
import { momentText } from "../data/clock";
import { type Culprit, HAD, type Had } from "../data/model/pressure";
import type { TraceStore } from "../data/model/trace";
import { traits } from "../data/takers";
import { duration, milliseconds, percent } from "../format";
import { focus, goToReason } from "../state/moves";
import { loading, selection } from "../state/store";
import { middle } from "../text";
import type { Found } from "./OverviewView";
import { showRequests, showThere } from "./Sentence";
import { culpritOf, requestWords, rowsOf } from "./words";

const SHOWN = 5;

/** Reasons, worst stretches, and the requests that held the others back. */
export function Lists({ store, found }: { store: TraceStore; found: Found }) {
  return (
    <div class="overview-lists">
      <Reasons store={store} found={found} />
      <Stretches store={store} found={found} />
      <Culprits store={store} found={found} />
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

function Stretches({ store, found: { stretches, late } }: { store: TraceStore; found: Found }) {
  if (stretches.length === 0) return null;
  return (
    <section aria-labelledby="overview-stretches">
      <h2 id="overview-stretches">
        Worst stretches <small>{late ? "slowest first tokens" : "most waiting"} first, for all reasons</small>
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

const WORDS: Record<Had, string> = {
  ...{ tokens: "tokens", blocks: "KV blocks", head: "head of queue", seat: "seat", slot: "LoRA slot" },
};

function Culprits({ store, found: { blame, stretches } }: { store: TraceStore; found: Found }) {
  const [worst] = stretches;
  const guilty = worst && blame ? culpritOf(store, worst, blame) : null;
  const lines: { key: string; words: string; seconds: number; had: Had; several?: boolean; show(): void }[] = [];
  const show = (filter: string) => (worst ? showThere(store, filter, worst) : showRequests(filter));
  // A request that the group's line names has none of its own.
  const spoken = ({ request, had }: Culprit) =>
    had === guilty?.group?.had &&
    traits(store, request).some(([key, name]) => key === guilty.group?.key && name === guilty.group.name);
  const alone = (blame?.culprits ?? []).filter((culprit) => culprit.had !== "slot" && !spoken(culprit));
  for (const { request, seconds, had } of alone.slice(0, SHOWN)) {
    const show = () => focus(Math.max(store.requests.firstRow[request], 0), request);
    lines.push({ key: `${request} ${had}`, words: requestWords(store, request), seconds, had, show });
  }
  // Adapters hold slots, not the requests that ask for them.
  for (const { name, seconds, had } of (blame?.groups ?? []).filter(({ had }) => had === "slot").slice(0, SHOWN)) {
    lines.push({ key: name, words: name, seconds, had, show: () => show(`lora:"${name}"`) });
  }
  if (guilty?.group) {
    const { who, group } = guilty;
    lines.push({
      key: who.filter,
      words: who.short,
      seconds: group.seconds,
      had: group.had,
      several: true,
      show: () => show(who.filter),
    });
  }
  if (lines.length === 0) return null;
  lines.sort((a, b) => b.seconds - a.seconds);
  const rest = HAD.filter((had) => (blame?.unnamed[had] ?? 0) > 0);
  return (
    <section aria-labelledby="overview-culprits">
      <h2
        id="overview-culprits"
        title="Each step's waiting, shared out by who had what was missing: tokens, KV blocks or the head of the queue, a seat, a LoRA slot"
      >
        Who held others back{stretches.length > 0 ? " in the worst" : ""} <small>their part</small>
      </h2>
      <ol class="overview-list">
        {lines.slice(0, SHOWN).map((line) => (
          <li key={line.key} title={line.words} class={line.several ? "several" : undefined}>
            <Entry onClick={line.show}>{line.several ? line.words : middle(line.words, 22)}</Entry>
            <span class="number">{line.seconds < 100 ? milliseconds(line.seconds) : duration(line.seconds)}</span>
            <span class="number quiet">{WORDS[line.had]}</span>
          </li>
        ))}
        {rest.map((had) => (
          <li key={had} title="The trace, with its bound on ids, names only the first of many who run">
            <span class="spring quiet">not named in the trace</span>
            <span class="number">{duration(blame?.unnamed[had] ?? 0)}</span>
            <span class="number quiet">{WORDS[had]}</span>
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

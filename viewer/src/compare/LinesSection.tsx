import { useMemo, useState } from "preact/hooks";
import { Plot, type PlotSpec } from "../charts/Plot";
import type { LevelsOfDetail } from "../data/model/levels";
import type { TraceStore } from "../data/model/trace";
import { count, fixed, moment, shortCount, shortMoment } from "../format";
import { SURFACES, type ThemeName } from "../palette";
import { revision, themeName } from "../state/store";
import { useLevels } from "../statistics/useStatistics";
import { joined, type Line, lineOf, type Quantity } from "./lines";

interface LinesProps {
  a: TraceStore;
  b: TraceStore;
  by: "step" | "time";
}

const POINTS = 500;
const HEIGHT = 130;
const QUANTITIES: Record<Quantity, string> = {
  kv: "KV blocks in use, %",
  running: "running",
  waiting: "waiting",
  tokens: "tokens scheduled",
};

/** The two runs over each other: A as a whole line, B dashed. */
export function LinesSection(props: LinesProps) {
  const changed = revision.value;
  const levelsA = useLevels(props.a, changed);
  const levelsB = useLevels(props.b, changed);
  return (
    <section aria-labelledby="lines-title">
      <h3 id="lines-title">Over {props.by === "step" ? "the steps" : "time"}</h3>
      <ul class="keys">
        <li>
          <span class="line-a" aria-hidden="true" /> A <span class="id">{props.a.name}</span>
        </li>
        <li>
          <span class="line-b" aria-hidden="true" /> B <span class="id">{props.b.name}</span>
        </li>
      </ul>
      <div class="columns">
        {(Object.keys(QUANTITIES) as Quantity[]).map((quantity) => (
          <Lines
            key={quantity}
            {...props}
            quantity={quantity}
            levelsA={levelsA}
            levelsB={levelsB}
            theme={themeName.value}
          />
        ))}
      </div>
    </section>
  );
}

interface OneProps extends LinesProps {
  quantity: Quantity;
  levelsA: LevelsOfDetail | null;
  levelsB: LevelsOfDetail | null;
  theme: ThemeName;
}

function Lines({ a, b, by, quantity, levelsA, levelsB, theme }: OneProps) {
  const [at, setAt] = useState<number | null>(null);
  const lines = useMemo<[Line, Line]>(
    () => [lineOf(a, levelsA, quantity, by, POINTS), lineOf(b, levelsB, quantity, by, POINTS)],
    [a, b, levelsA, levelsB, quantity, by],
  );
  const data = useMemo(() => joined(...lines), [lines]);
  const spec = useMemo(() => chart(quantity, by, theme), [quantity, by, theme]);
  const place = (x: number) => (by === "step" ? `step ${count(x)}` : moment(x));
  const value = (line: Line, x: number) => {
    const y = line.y[nearest(line.x, x)];
    return y === undefined || Number.isNaN(y) ? "–" : fixed(y, quantity === "kv" ? 1 : 0);
  };
  const describe = (index: number) => {
    const x = data[0][index];
    return x === undefined ? "" : `${place(x)}: A ${value(lines[0], x)}, B ${value(lines[1], x)}`;
  };
  return (
    <figure class="occupancy">
      <figcaption>
        <h4>{QUANTITIES[quantity]}</h4>
        <output class="number">{at === null ? "" : describe(at)}</output>
      </figcaption>
      <Plot spec={spec} data={data} sync={`compare-${a.key}-${b.key}`} describe={describe} onCursor={setAt} />
    </figure>
  );
}

/** Last place that is not above `x`. */
function nearest(places: readonly number[], x: number): number {
  let low = 0;
  let high = places.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >>> 1;
    if (places[middle] <= x) low = middle;
    else high = middle - 1;
  }
  return low;
}

function chart(quantity: Quantity, by: "step" | "time", theme: ThemeName): PlotSpec {
  const surface = SURFACES[theme];
  return {
    label: `${QUANTITIES[quantity]}, A and B over ${by === "step" ? "the steps" : "time"}`,
    height: HEIGHT,
    curves: [{ stroke: surface.text }, { stroke: surface.accent, dash: [6, 4] }],
    xText: by === "step" ? count : shortMoment,
    ...(by === "time" ? { base: 0 } : {}),
    yText: shortCount,
    ...(quantity === "kv" ? { yTop: 100 } : {}),
    theme,
  };
}

import { count, percent } from "../format";
import { useRoving } from "./roving";
import "./charts.css";

export interface Bin {
  /** `40–45 %`. */
  label: string;
  value: number;
  /** Shares of the bar, from the bottom up; they sum to 1. Without them the bar is of one kind. */
  parts?: { name: string; style: Record<string, string>; share: number }[];
  onClick?(): void;
}

export interface Tick {
  /** 0 at the left end of the scale, 1 at its right end. */
  at: number;
  text: string;
}

interface HistogramProps {
  label: string;
  /** What is counted: `steps`. */
  unit: string;
  bins: Bin[];
  /** One or two scales, drawn under each other. */
  scales: { name: string; ticks: Tick[] }[];
  /** Of bars without parts. */
  fill?: string;
  /** 0 .. 1, marked with a dashed line. */
  mean?: { at: number; text: string } | null;
}

/** Bars of equal width as real buttons: they can be focused, read aloud and clicked. */
export function Histogram({ label, unit, bins, scales, fill, mean }: HistogramProps) {
  const most = Math.max(...bins.map((bin) => bin.value), 0);
  const total = bins.reduce((sum, bin) => sum + bin.value, 0);
  const roving = useRoving(bins.length);
  return (
    <figure class="histogram" aria-label={label}>
      <div class="histogram-top">
        <span class="number">{count(most)}</span> {unit} in the tallest bar
      </div>
      <div class="histogram-plot">
        <ul onKeyDown={roving.onKeyDown}>
          {bins.map((bin, index) => (
            <li key={bin.label}>
              <Bar
                bin={bin}
                fill={fill}
                unit={unit}
                height={most ? bin.value / most : 0}
                share={total ? bin.value / total : 0}
                tabIndex={roving.tabIndex(index)}
                setRef={roving.ref(index)}
                onFocus={() => roving.onFocus(index)}
              />
            </li>
          ))}
        </ul>
        {mean && (
          <div class={mean.at > 0.7 ? "histogram-mean left" : "histogram-mean"} style={{ left: `${100 * mean.at}%` }}>
            <span>{mean.text}</span>
          </div>
        )}
      </div>
      {scales.map((scale) => (
        <div class="histogram-scale" key={scale.name} aria-hidden="true">
          {scale.ticks.map((tick) => (
            <span key={tick.at} style={{ left: `${100 * tick.at}%` }}>
              {tick.text}
            </span>
          ))}
        </div>
      ))}
    </figure>
  );
}

interface BarProps {
  bin: Bin;
  fill: string | undefined;
  unit: string;
  height: number;
  share: number;
  tabIndex: number;
  setRef(element: HTMLElement | null): void;
  onFocus(): void;
}

function Bar({ bin, fill, unit, height, share, tabIndex, setRef, onFocus }: BarProps) {
  const parts = (bin.parts ?? []).filter((part) => part.share > 0);
  const split = parts.map((part) => `${part.name} ${percent(part.share)}`).join(", ");
  const text = `${bin.label}: ${count(bin.value)} ${unit} (${percent(share)})${split ? `; ${split}` : ""}`;
  return (
    <button
      type="button"
      ref={setRef}
      tabIndex={tabIndex}
      title={text}
      aria-label={text}
      onFocus={onFocus}
      onClick={() => bin.value > 0 && bin.onClick?.()}
    >
      <span
        class="histogram-bar"
        style={{ height: bin.value ? `max(2px, ${100 * height}%)` : "0", ...(fill ? { background: fill } : {}) }}
      >
        {parts.map((part) => (
          <span key={part.name} style={{ ...part.style, flexGrow: part.share }} />
        ))}
      </span>
    </button>
  );
}

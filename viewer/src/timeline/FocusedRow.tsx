/** The opened row: everything of its step, as elements that can be read aloud, copied and clicked. */

import { useEffect, useRef, useState } from "preact/hooks";
import { shortId } from "../data/labels";
import type { Pill } from "../data/model/moment";
import { FLAME_PATH, OVERLAYS, PILLS } from "../palette";
import { focusRequest, trace } from "../state/store";
import type { Column } from "./geometry";
import type { RowContent } from "./textRows";

/** More pills are drawn on request. */
const PILLS_AT_ONCE = 200;

interface Props {
  id: string;
  content: RowContent;
  reason: string;
  columns: readonly Column[];
  rowIndex: number;
  top: number;
  least: number;
  most: number;
  meant: ((request: number) => boolean) | null;
  onHeight(height: number): void;
  onPill(pill: Pill): void;
}

export function FocusedRow(props: Props) {
  const { id, content, reason, columns, rowIndex, top, least, most, onHeight } = props;
  const element = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const row = element.current;
    if (!row) return;
    const measure = () => onHeight(row.offsetHeight);
    const observer = new ResizeObserver(measure);
    observer.observe(row);
    measure();
    return () => observer.disconnect();
  }, [onHeight]);
  const cell = (at: number) => ({ width: `${columns[at].width}px`, ...(columns[at].width ? {} : { display: "none" }) });
  return (
    <div
      ref={element}
      id={id}
      class="focused-row"
      role="row"
      aria-rowindex={rowIndex + 2}
      aria-selected="true"
      style={{ transform: `translateY(${Math.round(top)}px)`, minHeight: `${least}px`, maxHeight: `${most}px` }}
    >
      <div role="gridcell" class="number strong" style={cell(0)}>
        {content.step}
      </div>
      <div role="gridcell" class="number" style={cell(1)}>
        {content.elapsed}
        <br />
        <span class="quiet">{content.delta}</span>
      </div>
      <div role="gridcell" class="badges" style={cell(2)}>
        <span class="hidden-text">{reason}: </span>
        {content.badges.map((badge) => (
          <span
            key={`${badge.kind} ${badge.label}`}
            class={`badge ${badge.kind}${badge.hot ? " hot" : ""}${badge.label.endsWith(":0") ? " zero" : ""}`}
            title={badge.title}
          >
            {badge.label}
            {badge.hot && <Flame />}
          </span>
        ))}
      </div>
      <PillCell {...props} title="Running" pills={content.running} omitted={content.runningOmitted} width={cell(3)} />
      <PillCell {...props} title="Waiting" pills={content.waiting} omitted={content.waitingOmitted} width={cell(4)} />
    </div>
  );
}

function Flame() {
  return (
    <svg class="flame" width="10" height="12" role="img" aria-label="at least 90 % of the budget">
      <path d={FLAME_PATH} fill="currentColor" />
    </svg>
  );
}

interface CellProps extends Props {
  title: string;
  pills: readonly Pill[];
  omitted: number;
  width: { width: string };
}

function PillCell({ title, pills, omitted, width, onPill, meant }: CellProps) {
  const [shown, setShown] = useState(PILLS_AT_ONCE);
  const rest = pills.length - shown;
  return (
    <div role="gridcell" class="pills" style={width}>
      <span class="hidden-text">
        {title}: {pills.length + omitted}
      </span>
      <div class="pill-list" role="toolbar" aria-label={title} onKeyDown={rove}>
        {pills.slice(0, shown).map((pill, at) => (
          <PillButton
            key={pill.request}
            pill={pill}
            first={at === 0}
            dim={meant !== null && !meant(pill.request)}
            onPill={onPill}
          />
        ))}
      </div>
      {rest > 0 && (
        <button type="button" class="plain" onClick={() => setShown(shown + PILLS_AT_ONCE)}>
          {rest} more
        </button>
      )}
      {omitted > 0 && <p class="quiet omitted">{omitted} more are not named in the trace (its bound on ids)</p>}
      {pills.length + omitted === 0 && <span class="quiet">no request</span>}
    </div>
  );
}

interface PillProps {
  pill: Pill;
  first: boolean;
  dim: boolean;
  onPill(pill: Pill): void;
}

function PillButton({ pill, first, dim, onPill }: PillProps) {
  const { letter, words } = PILLS[pill.kind];
  const chosen = focusRequest.value === pill.request;
  const name = shortId(trace.peek()?.requests.ids[pill.request] ?? "", 120);
  const overlays = [pill.pinned && OVERLAYS.pinned.words, pill.prefill && "in prefill"].filter(Boolean);
  return (
    <button
      type="button"
      class={`pill${pill.prefill ? " prefill" : ""}${chosen ? " chosen" : ""}${dim ? " dim" : ""}`}
      style={{ "--fill": `var(--pill-${pill.kind})`, "--ink": `var(--pill-${pill.kind}-ink)` }}
      tabIndex={first ? 0 : -1}
      aria-pressed={chosen}
      title={[name, words, ...overlays, pill.reason].filter(Boolean).join("\n")}
      onClick={() => onPill(pill)}
    >
      <b aria-hidden="true">{letter}</b> <span class="hidden-text">{words.split(":")[0]}: </span>
      {pill.pinned && `${OVERLAYS.pinned.letter} `}
      {pill.label}
    </button>
  );
}

/** Arrows move among the pills of a list: only one of them is a stop of the Tab key. */
function rove(event: KeyboardEvent): void {
  const direction = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  if (direction === undefined || !(event.currentTarget instanceof HTMLElement)) return;
  const all = [...event.currentTarget.querySelectorAll("button")];
  const next = all[all.indexOf(document.activeElement as HTMLButtonElement) + direction];
  if (!next) return;
  event.preventDefault();
  event.stopPropagation();
  next.focus();
}

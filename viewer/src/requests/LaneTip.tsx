import { PHASES } from "../charts/tones";
import { shortId } from "../data/labels";
import { MISSING, type RequestIndex } from "../data/model/columns";
import type { JobLane, Phase, RequestLife } from "../data/model/lives";
import type { TraceStore } from "../data/model/trace";
import { traits } from "../data/takers";
import { count, milliseconds, plural } from "../format";
import type { Hit } from "./hit";
import { LABEL_WIDTH } from "./paint";

const WIDTH = 300;

interface LaneTipProps {
  store: TraceStore;
  over: { hit: Hit; x: number; y: number };
  size: { width: number; height: number };
  scrollTop: number;
}

/** Beside the pointer: what it points at. */
export function LaneTip({ store, over, size, scrollTop }: LaneTipProps) {
  const { turn, phase, one } = over.hit;
  if (!one || (over.x >= LABEL_WIDTH && (!turn || !phase))) return null;
  const left = Math.min(over.x + 14, Math.max(size.width - WIDTH - 8, 0));
  const below = over.y + 112 < size.height;
  return (
    <div
      class="lane-tip"
      style={{ left: `${left}px`, top: `${scrollTop + (below ? over.y + 16 : over.y - 96)}px`, width: `${WIDTH}px` }}
    >
      {turn && phase && over.x >= LABEL_WIDTH ? (
        <>
          <strong class="id">{shortId(store.requests.ids[turn.request], 36)}</strong>
          <span>{phaseWords(store, phase)}</span>
          <span>{kindOf(store, turn.request)}</span>
        </>
      ) : (
        <>
          <strong class="id">{shortId(one.lane.label, 36)}</strong>
          <span>{laneSummary(one.lane)}</span>
          {one.lane.turns.length === 1 && <span>{kindOf(store, one.lane.turns[0].request)}</span>}
        </>
      )}
    </div>
  );
}

/** `prompt 12,034, answer 60, tenant 2ef4f64`. */
function kindOf(store: TraceStore, request: RequestIndex): string {
  const { promptTokens, outputTokens } = store.requests;
  const tokens = (name: string, value: number) => (value === MISSING ? [] : [`${name} ${count(value)}`]);
  const owners = traits(store, request).filter(([key]) => ["tenant", "user", "lora"].includes(key));
  return [
    ...tokens("prompt", promptTokens[request]),
    ...tokens("answer", outputTokens[request]),
    ...owners.map(([key, name]) => `${key === "lora" ? "adapter" : key} ${shortId(name, 20)}`),
  ].join(", ");
}

/** `decode, steps 120–340, 2.31 s`. */
export function phaseWords(store: TraceStore, phase: Phase): string {
  const from = store.steps.number[phase.first];
  const to = store.steps.number[phase.last];
  const seconds = phase.end - phase.begin;
  const steps = to <= from ? `step ${count(from)}` : `steps ${count(from)}–${count(to)}`;
  return `${PHASES[phase.kind].words}, ${steps}${Number.isNaN(seconds) ? "" : `, ${milliseconds(seconds)}`}`;
}

export function turnWords(store: TraceStore, life: RequestLife): string {
  return `${shortId(store.requests.ids[life.request], 60)}: ${life.phases.map((phase) => phaseWords(store, phase)).join("; ")}`;
}

function laneSummary(lane: JobLane): string {
  return `${plural(lane.turns.length, "turn")}, waited ${milliseconds(lane.waited)} of ${milliseconds(lane.end - lane.begin)}`;
}

export function laneWords(lane: JobLane, position: number, lanes: number): string {
  return `${shortId(lane.label, 60)}: ${laneSummary(lane)}; lane ${count(position + 1)} of ${count(lanes)}`;
}

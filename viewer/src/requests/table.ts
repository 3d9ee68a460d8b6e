/** The columns of the table of requests, its order, and the table as CSV. */

import { isBounded, meets } from "../data";
import { momentText } from "../data/clock";
import { MISSING, type Whole } from "../data/model/columns";
import type { RequestFigures } from "../data/model/requestFigures";
import type { Bounds } from "../data/model/slo";
import type { TraceStore } from "../data/model/trace";
import { TENANT_MEANING } from "../data/wording";
import { csvLine } from "../export/csv";
import { count, milliseconds, percent } from "../format";

export interface TableColumn {
  key: string;
  title: string;
  meaning: string;
  /** Its head in a CSV: the title, with the unit. */
  csv: string;
  /** Text, not a number. */
  words?: boolean;
  /** Shown on request. */
  rare?: boolean;
  /** By which lines are sorted. */
  value(index: number): number | string;
  text(index: number): string;
}

export function columnsOf(store: TraceStore, found: RequestFigures): TableColumn[] {
  const seconds = (key: keyof Numbers, title: string, meaning: string): TableColumn => ({
    ...{ key, title, meaning, csv: `${underscored(title)}_s` },
    value: (index) => found[key][index],
    text: (index) => milliseconds(found[key][index]),
  });
  const tokens = (key: "prompt" | "output", title: string, meaning: string): TableColumn => ({
    ...{ key, title, meaning, csv: `${title}_tokens` },
    value: (index) => found[key][index],
    text: (index) => count(known(found[key][index])),
  });
  const words = (key: string, meaning: string, text: (request: number, index: number) => string): TableColumn => ({
    ...{ key, title: key, meaning, csv: key, words: true },
    value: (index) => text(found.request[index], index),
    text: (index) => text(found.request[index], index),
  });
  const whole = (title: string, meaning: string, column: Whole): TableColumn => ({
    ...{ key: underscored(title), title, meaning, csv: underscored(title) },
    value: (index) => unless(column[found.request[index]]),
    text: (index) => count(known(unless(column[found.request[index]]))),
  });
  const { requests, jobs, tenants, adapters, finishReasons } = store;
  return [
    words("request", "its id", (request) => requests.ids[request]),
    words("status", "what became of it", (_, index) => found.status[index]),
    {
      ...seconds("arrived", "arrived", "when it came, as the axes count"),
      text: (index) => momentText(store, requests.arrivalTime[found.request[index]]),
    },
    seconds("waited", "waited", "queued, preempted and stalled together, as `tokenyard why` counts it"),
    {
      ...words("reason", "what it waited for most", (_, index) => found.reason[index]),
      ...{ title: "mostly for", csv: "mostly_for" },
    },
    seconds("queue", "queue", "arrival to first scheduled"),
    seconds("ttft", "TTFT", "time to first token: arrival to first token"),
    seconds("tpot", "TPOT", "time per output token after the first"),
    seconds("e2e", "E2E", "end to end: arrival to end"),
    tokens("prompt", "prompt", "tokens of its prompt"),
    tokens("output", "output", "tokens of its answer"),
    {
      ...{ key: "hit", title: "hit", meaning: "share of its prompt found in a cache at its first lookup" },
      csv: "hit_share",
      value: (index) => found.hit[index],
      text: (index) => percent(known(found.hit[index])),
    },
    {
      ...{ key: "preemptions", title: "preempted", meaning: "how often it lost its blocks", csv: "preempted" },
      value: (index) => found.preemptions[index],
      text: (index) => count(known(found.preemptions[index])),
    },
    {
      ...{
        key: "place",
        title: "place",
        meaning: "place in the waiting queue in which it is first seen, and its length",
        csv: "place",
      },
      value: (index) => found.place[index],
      text: (index) =>
        Number.isNaN(found.place[index]) ? "–" : `${count(found.place[index])} of ${count(found.placeOf[index])}`,
    },
    ...[
      words("job", "the job of which it is a turn", (request) => jobs.ids[requests.job[request]] ?? ""),
      words("tenant", TENANT_MEANING, (request) => tenants[requests.tenant[request]] ?? ""),
      words("lora", "its LoRA adapter", (request) => adapters[requests.adapter[request]] ?? ""),
      words("ended", "why it ended", (request) => finishReasons[requests.finishReason[request]] ?? ""),
      whole("priority", "smaller is more urgent", requests.priority),
      whole("bound", "most tokens of its answer (max_tokens)", requests.maxTokens),
      whole(
        "cached",
        "tokens of its prompt that its first lookup found in this engine's cache",
        requests.localHitTokens,
      ),
      whole("recomputed", "tokens computed again after preemptions", requests.recomputedTokens),
      ...[...found.lost].map(([reason, lost]): TableColumn => {
        const column = { key: `lost_${reason}`, title: `for ${reason}`, csv: `waited_for_${reason}_s` };
        const meaning = `how long it waited for ${reason}`;
        return { ...column, meaning, value: (index) => lost[index], text: (index) => milliseconds(lost[index]) };
      }),
    ].map((column): TableColumn => ({ ...column, rare: true })),
  ];
}

function unless(value: number): number {
  return value === MISSING ? Number.NaN : value;
}

type Numbers = Omit<RequestFigures, "version" | "count" | "request" | "reason" | "floors" | "status" | "lost">;

function underscored(title: string): string {
  return title.toLowerCase().replaceAll(" ", "_");
}

function known(value: number): number | null {
  return Number.isNaN(value) ? null : value;
}

/** `ttft`, or `-ttft` for largest first. */
export interface Sorting {
  key: string;
  down: boolean;
}

/** The request that waited longest stands first unless the address says otherwise. */
export function sortingOf(text: string | undefined): Sorting {
  const found = /^(-?)(\w+)$/i.exec(text ?? "-waited");
  return found ? { key: found[2], down: found[1] === "-" } : { key: "waited", down: true };
}

/** Whether a line is shown: of requests that were served within every bound (`met`), of those that were not, or of all. */
export function outcomeTest(found: RequestFigures, bounds: Bounds, outcome: string | undefined) {
  if (!isBounded(bounds) || (outcome !== "met" && outcome !== "missed")) return () => true;
  return (index: number): boolean => {
    const [ttft, tpot, e2e] = [found.ttft[index], found.tpot[index], found.e2e[index]];
    return meets({ ttft, tpot, e2e }, bounds) === (outcome === "met");
  };
}

/** Lines in order; what is not known stands last. `meant`: 1 for each request that the filter means; null for all. */
export function ordered(
  found: RequestFigures,
  column: TableColumn | undefined,
  down: boolean,
  meant: Uint8Array | null,
  shown: (index: number) => boolean = () => true,
): Int32Array {
  const lines: number[] = [];
  for (let index = 0; index < found.count; index++) {
    if ((!meant || meant[found.request[index]] === 1) && shown(index)) lines.push(index);
  }
  if (!column) return Int32Array.from(lines);
  const values = lines.map((index) => column.value(index));
  const sign = down ? -1 : 1;
  const collate = new Intl.Collator("en", { numeric: true }).compare;
  const compare = (a: number, b: number): number => {
    const [one, other] = [values[a], values[b]];
    if (typeof one === "string" || typeof other === "string")
      return sign * collate(String(one), String(other)) || a - b;
    if (Number.isNaN(one) || Number.isNaN(other))
      return Number(Number.isNaN(one)) - Number(Number.isNaN(other)) || a - b;
    return sign * (one - other) || a - b;
  };
  return Int32Array.from(lines.map((_, at) => at).sort(compare), (at) => lines[at]);
}

/** The lines of the table as they stand: ids whole, numbers as numbers of seconds. */
export function tableCsv(store: TraceStore, found: RequestFigures, lines: Int32Array): Blob {
  const columns = columnsOf(store, found);
  const rows = [csvLine([...columns.map(({ csv }) => csv), "place_of"])];
  for (const index of lines) {
    rows.push(csvLine([...columns.map(({ value }) => value(index)), found.placeOf[index]]));
  }
  return new Blob(rows, { type: "text/csv" });
}

/** 1 where both have it; null means all. */
export function both(one: Uint8Array | null, other: Uint8Array | null): Uint8Array | null {
  return one && other ? one.map((has, at) => has & other[at]) : (one ?? other);
}

/** What is known of a request for good, put into words. */

import { momentText } from "../data/clock";
import { shortId } from "../data/labels";
import { MISSING, type RequestIndex } from "../data/model/columns";
import type { TraceStore } from "../data/model/trace";
import { STATUSES, statusOf } from "../data/status";
import { adapterOf } from "../data/takers";
import { TENANT_MEANING } from "../data/wording";
import { count, milliseconds, percent } from "../format";

export interface Fact {
  name: string;
  value: string;
  title: string;
}

/** Only facts in the trace. */
export function requestFacts(store: TraceStore, request: RequestIndex): Fact[] {
  const { requests } = store;
  const arrival = requests.arrivalTime[request];
  const scheduled = requests.firstScheduledTime[request];
  const token = requests.firstTokenTime[request];
  const finished = requests.finishedTime[request];
  const output = requests.outputTokens[request];
  const exact = requests.timesRecorded[request] ? "" : " (exact to a step: pieced together from the queues)";
  const perToken = output > 1 ? (finished - token) / (output - 1) : Number.NaN;
  const reason = requests.finishReason[request];
  const facts: (Fact | null)[] = [
    Number.isNaN(arrival)
      ? null
      : { name: "arrived", value: momentText(store, arrival), title: `when it came, as the axes count${exact}` },
    time("queue", scheduled - arrival, `arrival to first scheduled${exact}`),
    time("TTFT", token - arrival, `arrival to first token${exact}`),
    time("TPOT", perToken, `per token after the first${exact}`),
    time("E2E", finished - arrival, `arrival to end${exact}`),
    whole("prompt tokens", requests.promptTokens[request], "length of the prompt"),
    whole("output tokens", output, "tokens sampled"),
    whole("max tokens", requests.maxTokens[request], "most tokens that it may produce"),
    ...hits(store, request),
    whole("preemptions", requests.numPreemptions[request], "how often it lost its blocks"),
    whole("computed again", requests.recomputedTokens[request], "tokens computed a second time after preemptions"),
    whole("priority", requests.priority[request], "smaller is more urgent"),
    { name: "status", value: statusWords(store, request, reason), title: STATUSES[statusOf(store, request)] },
    text("adapter", adapterOf(store, request), "its LoRA adapter"),
    text("tenant", store.tenants[requests.tenant[request]] ?? "", TENANT_MEANING),
  ];
  return facts.filter((fact) => fact !== null);
}

function statusWords(store: TraceStore, request: RequestIndex, reason: number): string {
  const status = statusOf(store, request);
  const why = store.finishReasons[reason]?.slice(0, 40);
  return why && why !== "abort" && why !== "error" ? `${status} (${why})` : status;
}

function text(name: string, value: string, title: string): Fact | null {
  return value === "" ? null : { name, value: shortId(value, 40), title };
}

function time(name: string, seconds: number, title: string): Fact | null {
  return Number.isNaN(seconds) ? null : { name, value: milliseconds(seconds), title };
}

function whole(name: string, value: number, title: string): Fact | null {
  return value === MISSING || Number.isNaN(value) ? null : { name, value: count(value), title };
}

function hits(store: TraceStore, request: RequestIndex): (Fact | null)[] {
  const { lookupPromptTokens, localHitTokens, externalHitTokens, lookupRow } = store.requests;
  const prompt = lookupPromptTokens[request];
  if (lookupRow[request] < 0 || prompt <= 0) return [];
  const of = (tokens: number) => `${count(tokens)} (${percent(tokens / prompt)})`;
  const local = Math.max(localHitTokens[request], 0);
  const external = Math.max(externalHitTokens[request], 0);
  return [
    { name: "prefix hit, local", value: of(local), title: "prompt tokens found in the KV cache at the first lookup" },
    external > 0 ? { name: "prefix hit, external", value: of(external), title: "found by a KV connector" } : null,
  ];
}

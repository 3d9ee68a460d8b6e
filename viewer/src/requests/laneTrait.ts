/** What a lane says of its requests beside its name. */

import { shortId } from "../data/labels";
import { MISSING, type RequestIndex } from "../data/model/columns";
import type { TraceStore } from "../data/model/trace";
import { adapterOf, modelOf, userOf } from "../data/takers";
import { shortCount } from "../format";
import type { Term } from "../state/filter";

export interface LaneTrait {
  /** For a head. */
  name: string;
  /** "" where the trace does not record it. */
  text(request: RequestIndex): string;
}

const CHARACTERS = 8;

function traitsOf(store: TraceStore): Record<string, LaneTrait> {
  const { requests, tenants } = store;
  const tokens = (column: ArrayLike<number>) => (request: RequestIndex) =>
    column[request] === MISSING ? "" : `${shortCount(column[request])} tok`;
  const named = (name: string, text: (request: RequestIndex) => string | undefined): LaneTrait => {
    return { name, text: (request) => shortId(text(request) ?? "", CHARACTERS) };
  };
  return {
    lora: named("adapter", (request) => adapterOf(store, request)),
    tenant: named("tenant", (request) => tenants[requests.tenant[request]]),
    user: named("user", (request) => userOf(store, request)),
    model: named("model", (request) => modelOf(store, request)),
    priority: {
      name: "priority",
      text: (request) => (requests.priority[request] === MISSING ? "" : `priority ${requests.priority[request]}`),
    },
    prompt: { name: "prompt", text: tokens(requests.promptTokens) },
    output: { name: "answer", text: tokens(requests.outputTokens) },
  };
}

/** What the filter asks about, as a link of the verdict does, or by what they are grouped; else what distinguishes them. */
export function laneTrait(store: TraceStore, terms: readonly Term[], group: string | undefined): LaneTrait {
  const all = traitsOf(store);
  const asked = terms.find(({ key, negated }) => key in all && !negated)?.key ?? group ?? "";
  const usual = store.adapters.length > 1 ? "lora" : store.tenants.length > 1 ? "tenant" : "prompt";
  return all[asked] ?? all[usual];
}

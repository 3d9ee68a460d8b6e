/** What the server has to look at. */

import { listings } from "../data";
import type { TraceListing } from "../data/model/sources";

/** GET /api/traces, page after page. Rejects with a sentence if there is no such server. */
export async function listTraces(signal?: AbortSignal): Promise<TraceListing[]> {
  const found: TraceListing[] = [];
  let page: string | undefined = "/api/traces";
  while (page) {
    const answer: Response = await fetch(page, signal ? { signal } : {});
    if (!answer.ok) throw new Error(`/api/traces answered ${answer.status}`);
    found.push(...listings(await answer.json()));
    page = /<(\/api\/traces\?[^>]*)>; rel="next"/.exec(answer.headers.get("Link") ?? "")?.[1];
  }
  return found;
}

/** A sweep among the traces: its page is the server's, not this one. */
export interface SweepListing {
  name: string;
  path: string;
}

/** GET /api/sweeps; none where the server knows of no such thing. */
export async function listSweeps(): Promise<SweepListing[]> {
  const answer = await fetch("/api/sweeps");
  const found: unknown = answer.ok ? await answer.json() : [];
  return Array.isArray(found) ? found.filter(isSweep) : [];
}

function isSweep(each: unknown): each is SweepListing {
  const { name, path } = (each ?? {}) as Partial<SweepListing>;
  return typeof name === "string" && typeof path === "string";
}

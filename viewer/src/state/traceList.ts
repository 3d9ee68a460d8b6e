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

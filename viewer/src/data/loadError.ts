/** Why a trace could not be loaded, for people. */

import type { LoadFailure } from "./model/sources";

/** Why a trace could not be loaded. */
export class LoadError extends Error implements LoadFailure {
  constructor(
    readonly title: string,
    readonly detail: string,
    readonly advice: string,
    readonly cancelled = false,
  ) {
    super(`${title}: ${detail}`);
    this.name = "LoadError";
  }
}

export function failure(error: unknown): LoadFailure {
  if (error instanceof LoadError) return error;
  return new LoadError(
    "The trace could not be loaded",
    error instanceof Error ? error.message : String(error),
    "Reload the page and try again; if it happens again, please report it with the file.",
  );
}

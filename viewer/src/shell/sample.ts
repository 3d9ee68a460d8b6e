/** The sample of the landing page: a real trace, small enough to be part of it. scripts/viewer_sample.py makes it. */

import type { TraceFiles, TraceSource } from "../data/model/sources";
import requests from "./sample.requests.txt?raw";
import steps from "./sample.steps.txt?raw";

export function sample(): TraceFiles {
  return { name: "sample", steps: source("steps", steps), requests: source("requests", requests) };
}

/** A file can be read again from its middle, for the details of a step. */
function source(kind: string, text: string): TraceSource {
  const path = `sample.${kind}.jsonl`;
  return { kind: "file", file: new File([text], path), path };
}

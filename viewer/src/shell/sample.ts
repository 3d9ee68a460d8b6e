/** The sample of the landing page: a real trace, small enough to be part of it. scripts/viewer_sample.py makes it. */

import type { TraceFiles } from "../data/model";
import requests from "./sample.requests.txt?raw";
import steps from "./sample.steps.txt?raw";

export function sample(): TraceFiles {
  return {
    name: "sample",
    steps: { kind: "bytes", bytes: bytesOf(steps), path: "sample.steps.jsonl.gz" },
    requests: { kind: "bytes", bytes: bytesOf(requests), path: "sample.requests.jsonl.gz" },
  };
}

function bytesOf(base64: string): Uint8Array {
  return Uint8Array.from(atob(base64.trim()), (character) => character.charCodeAt(0));
}

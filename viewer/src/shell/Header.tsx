/** One line about the run: each token from the field that the trace format names for it. */

import { useEffect, useState } from "preact/hooks";
import { header } from "../data";
import type { HeaderToken } from "../data/model/moment";
import type { TraceStore } from "../data/model/trace";
import { duration } from "../format";
import { setStick } from "../state/live";
import { canFollow, followTrace } from "../state/loader";
import { live, loading, revision } from "../state/store";
import { middle, plain } from "../text";
import { LoadLine } from "./Progress";

export function Header({ store, title }: { store: TraceStore; title: string }) {
  revision.value;
  const tokens = header(store);
  const source = tokens.find((token) => token.kind === "source");
  return (
    <header class="header">
      <h1 class="hidden-text">{title}</h1>
      <ul class="tokens" aria-label="About this run">
        {tokens
          .filter((token) => token !== source)
          .map((token) => (
            <Token key={token.kind} token={token} />
          ))}
      </ul>
      {tokens.some(({ kind }) => kind === "partial") && canFollow() && (
        <button
          type="button"
          title="It may still be written: show the end, and what comes from now on"
          onClick={() => void followTrace()}
        >
          follow
        </button>
      )}
      {loading.value && <LoadLine state={loading.value} />}
      {live.value.phase !== "off" && <LiveLine />}
      <span class="spring" />
      {source && (
        <span class="token source id" title={plain(source.title)}>
          {middle(source.text, 48)}
        </span>
      )}
    </header>
  );
}

function Token({ token }: { token: HeaderToken }) {
  return (
    <li class={`token ${token.kind}`} title={plain(token.title)}>
      {middle(token.text, 60)}
    </li>
  );
}

/** Seconds without a step that are worth a word. */
const SILENT_S = 3;

function LiveLine() {
  const { phase, sentence, stick, heard } = live.value;
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const clock = setInterval(() => setNow(Date.now()), 1_000);
    return () => clearInterval(clock);
  }, []);
  const silent = Math.floor((Math.max(now, heard) - heard) / 1_000);
  return (
    <span class={`live ${phase}`} role="status">
      <span aria-hidden="true">{phase === "lost" ? "▲" : "●"}</span>
      <span class="live-sentence" title={sentence}>
        {sentence}
      </span>
      {phase !== "lost" && silent >= SILENT_S && (
        <strong class="live-silent">last step {silent < 100 ? `${silent} s` : duration(silent)} ago</strong>
      )}
      <label>
        <input
          type="checkbox"
          checked={stick}
          onChange={(event) => {
            setStick(event.currentTarget.checked);
          }}
        />
        keep the end in view
      </label>
    </span>
  );
}

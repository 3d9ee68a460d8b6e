import { Component, type ComponentChildren } from "preact";
import { CopyButton } from "../export/CopyButton";
import { cut } from "../text";

interface GuardedProps {
  /** What is inside: `the KV blocks`. */
  what: string;
  children: ComponentChildren;
}

/** Keeps an error of what is inside to itself: the message stands in its place, and the rest of the page goes on. */
export class Guarded extends Component<GuardedProps, { failure: string | null }> {
  override state = { failure: null as string | null };

  static override getDerivedStateFromError(error: unknown) {
    return { failure: error instanceof Error ? `${error.name}: ${error.message}` : String(error) };
  }

  override render({ what, children }: GuardedProps, { failure }: { failure: string | null }) {
    if (failure === null) return children;
    return (
      <section class="guarded" role="alert" aria-label={`${what}: not shown`}>
        <strong>An error in this page keeps {what} from being shown.</strong> Everything else works.{" "}
        <code>{cut(failure, 300)}</code> <CopyButton text={() => failure} label="Copy the error" />{" "}
        <button type="button" onClick={() => this.setState({ failure: null })}>
          try again
        </button>
      </section>
    );
  }
}

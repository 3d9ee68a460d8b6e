/** The page: what is shown before a trace is loaded. */

export function App() {
  return (
    <main>
      <h1>Tokenyard viewer</h1>
      <p>
        Record a trace with <code>tokenyard run agentic --trace traces/agentic</code>, then drop its files here.
      </p>
    </main>
  );
}

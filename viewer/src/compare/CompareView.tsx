/** The Compare tab. */

export function CompareView() {
  return <p class="quiet">This view is not built yet.</p>;
}

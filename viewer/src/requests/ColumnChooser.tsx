import { setExtra } from "../state/store";

export interface Choice {
  key: string;
  title: string;
  meaning: string;
  /** Not shown before it is requested. */
  rare?: boolean;
}

interface Props {
  /** Those that can be left out. */
  all: readonly Choice[];
  shown: readonly Choice[];
  /** Where the address keeps what was chosen. */
  kept: string;
}

/** Which columns a table has. */
export function ColumnChooser({ all, shown, kept }: Props) {
  const isShown = ({ key }: Choice) => shown.some((one) => one.key === key);
  const toggle = (column: Choice) => {
    const keys = all.filter((one) => isShown(one) !== (one.key === column.key)).map(({ key }) => key);
    const usual = all.filter(({ rare }) => !rare).map(({ key }) => key);
    setExtra(kept, keys.join() === usual.join() ? "" : keys.join() || "none");
  };
  return (
    <details class="chooser">
      <summary>
        Columns ({all.filter(isShown).length} of {all.length})
      </summary>
      <ul>
        {all.map((column) => (
          <li key={column.key}>
            <label title={column.meaning}>
              <input type="checkbox" checked={isShown(column)} onChange={() => toggle(column)} />
              {column.title}
            </label>
          </li>
        ))}
      </ul>
    </details>
  );
}

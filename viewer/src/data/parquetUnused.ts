/**
 * What hyparquet brings for other files than ours: filters, Bloom filters, variants, geometry. The build puts this in their
 * place (vite.config.ts), which leaves 6 kB of the page for something that is used.
 */

const nothing = (): unknown[] => [];
const no = (): boolean => false;
const never = (): never => {
  throw new Error("this Parquet file holds columns that no trace has");
};

/** Nobody asks for a filter, so there is none to be applied. */
export const columnsNeededForFilter = nothing;
export const pathsNeededForFilter = nothing;
export const filterPageRanges = nothing;
export const bloomEligibleColumns = nothing;
export const canSkipRowGroup = no;
export const matchFilter = (): boolean => true;
export const readBloomFilter = never;
export const decodeVariantColumn = never;
export const wkbToGeojson = never;
export const markGeoColumns = (): void => undefined;

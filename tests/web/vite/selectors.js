// What Grafana's data sources select of answers, by the libraries that they read them with: JSONata is Infinity's, in
// Go there, and JSONPath Plus that of the JSON API data source. Reads a list of { json, root, columns } from stdin.
import { text } from "node:stream/consumers";
import jsonata from "jsonata";
import { JSONPath } from "jsonpath-plus";

const read = async ({ json, root, columns }) => {
  const rows = await jsonata(root).evaluate(json);
  const paths = columns.map((column) => JSONPath({ path: `${root}[*].${column}`, json }));
  return { rows, paths };
};
console.log(JSON.stringify(await Promise.all(JSON.parse(await text(process.stdin)).map(read))));

// Evaluates expressions with GitHub's own library: a line of JSON in, a line of JSON out.
import { createInterface } from "node:readline";
import { data, Evaluator, Lexer, Parser } from "@actions/expressions";

const names = ["github", "secrets", "vars", "inputs", "job", "matrix", "needs", "steps", "env", "runner"];
// they depend on the state of a job, so that the library leaves them to a runner
const ofJob = ["always", "cancelled", "failure", "success"];
const known = ofJob.map((name) => ({ name, minArgs: 0, maxArgs: 0 }));

function evaluate({ text, contexts, status }) {
  const filled = Object.fromEntries(names.map((name) => [name, contexts[name] ?? {}]));
  const dictionary = JSON.parse(JSON.stringify(filled), data.reviver);
  const functions = new Map(
    known.map((info) => {
      const value = info.name === "always" || info.name === status;
      return [info.name, { ...info, call: () => new data.BooleanData(value) }];
    }),
  );
  const tree = new Parser(new Lexer(text).lex().tokens, names, known).parse();
  const result = new Evaluator(tree, dictionary, functions).evaluate();
  return { value: JSON.parse(JSON.stringify(result, data.replacer)), text: result.coerceString() };
}

for await (const line of createInterface({ input: process.stdin })) {
  let answer;
  try {
    answer = evaluate(JSON.parse(line));
  } catch (error) {
    answer = { error: String(error) };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}

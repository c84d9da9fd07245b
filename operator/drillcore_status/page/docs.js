// The API's reference, drawn from its OpenAPI document.

import { read } from "./api.js";
import { element, table } from "./dom.js";

const typeName = (schema) => {
  if (!schema) return "";
  if (schema.$ref) return schema.$ref.split("/").at(-1);
  if (schema.anyOf) return schema.anyOf.map(typeName).join(" or ");
  if (schema.items) return `list of ${typeName(schema.items)}`;
  return schema.type ?? (schema.const !== undefined ? JSON.stringify(schema.const) : "any");
};
const bodyType = (content) => Object.entries(content ?? {})
  .map(([type, { schema }]) => [typeName(schema), type].filter(Boolean).join(", ")).join("; ");

function operation(method, path, { summary, description, parameters = [], requestBody, responses }) {
  return element("section", {},
    element("h3", {}, element("code", {}, `${method.toUpperCase()} ${path}`)),
    element("p", {}, element("strong", {}, summary), description ? `. ${description}` : ""),
    parameters.length ? element("p", { class: "dim" }, `Parameters: ${parameters.map(({ name }) => name).join(", ")}`) : null,
    requestBody ? element("p", { class: "dim" }, `Body: ${bodyType(requestBody.content)}`) : null,
    table("Answers", [
      ["Code", ([code]) => code, "number"],
      ["Body", ([, answer]) => bodyType(answer.content)],
      ["Meaning", ([, answer]) => answer.description],
    ], Object.entries(responses)));
}

function schema(name, { description, properties = {}, required = [], enum: values }) {
  const fields = Object.entries(properties);
  return element("details", {},
    element("summary", {}, name),
    description ? element("p", {}, description) : null,
    values ? element("p", {}, values.join(" | ")) : null,
    fields.length ? table(name, [
      ["Field", ([field]) => (required.includes(field) ? `${field} *` : field)],
      ["Type", ([, value]) => typeName(value)],
      ["Meaning", ([, value]) => value.description ?? ""],
    ], fields) : null);
}

const { info, paths, components } = await read("/openapi.json");
document.getElementById("main").replaceChildren(
  element("h2", {}, `${info.title} ${info.version}`),
  element("p", {}, info.description),
  ...Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, details]) => operation(method, path, details))),
  element("h3", {}, "Schemas"),
  ...Object.entries(components.schemas).map(([name, details]) => schema(name, details)));

// A chat endpoint that streams from a model server over plain http, under the SDK's http instrumentation: what Node.js sends without any GenAI package.
const { NodeSDK } = require("@opentelemetry/sdk-node");
const { OTLPTraceExporter } = require("@opentelemetry/exporter-trace-otlp-proto");
const { HttpInstrumentation } = require("@opentelemetry/instrumentation-http");
const [collector, requests] = [process.argv[2], Number(process.argv[3] || 5)];
const sdk = new NodeSDK({
  serviceName: "chat-js",
  autoDetectResources: false,
  traceExporter: new OTLPTraceExporter({ url: collector + "/v1/traces" }),
  instrumentations: [new HttpInstrumentation()],
});
sdk.start();
const http = require("http");
const pause = (ms) => new Promise((done) => setTimeout(done, ms));
const model = http.createServer(async (_, answer) => {
  await pause(60);
  for (let chunk = 0; chunk < 5; chunk++) {
    answer.write(`data: {"choices":[{"delta":{"content":"w"}}]}\n\n`);
    await pause(10);
  }
  answer.end("data: [DONE]\n\n");
});
const chat = http.createServer((_, answer) => {
  const options = { port: model.address().port, host: "127.0.0.1", path: "/v1/chat/completions", method: "POST" };
  http.request(options, (stream) => stream.pipe(answer)).end(JSON.stringify({ model: "m", stream: true }));
});
const ask = (port) =>
  new Promise((done) => http.get({ host: "127.0.0.1", port, path: "/chat" }, (got) => got.resume().on("end", done)));
model.listen(0, "127.0.0.1", () =>
  chat.listen(0, "127.0.0.1", async () => {
    for (let n = 0; n < requests; n++) await ask(chat.address().port);
    await pause(100);
    await sdk.shutdown();
    process.exit(0);
  }),
);

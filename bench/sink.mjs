// A receiver that answers 200 as cheaply as Node can, in a process of its own. Prints its port; counts requests and
// connections; SIGUSR2 prints the counts. argv: [delayMs]
import { createServer } from 'node:http';

const delay = Number(process.argv[2] ?? 0);
let requests = 0;
let connections = 0;
const server = createServer((request, response) => {
  requests++;
  request.resume();
  request.on('end', () => (delay > 0 ? setTimeout(() => response.end(), delay) : response.end()));
});
server.on('connection', () => connections++);
server.keepAliveTimeout = 10_000;
server.listen(0, '127.0.0.1', () => console.log(server.address().port));
process.on('message', (message) => {
  if (message === 'count') process.send({ requests, connections });
});
process.on('disconnect', () => process.exit());

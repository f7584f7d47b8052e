// SPDX-License-Identifier: Apache-2.0
// One request with what Node has: fetch.js HOW URL. Prints the body; a failure is Node's own report.
const [how, url] = process.argv.slice(2);

async function withFetch() {
  console.log(await (await fetch(url)).text());
}

function withHttps() {
  require(new URL(url).protocol.slice(0, -1)).get(url, (answer) => answer.pipe(process.stdout));
}

function withWs() {
  const WebSocket = require('/usr/share/nodejs/ws');
  const socket = new WebSocket(url.replace('https:', 'wss:') + 'ws');
  socket.on('open', () => socket.send('lab echo'));
  socket.on('message', (data) => { console.log(data.toString()); socket.close(); });
}

({fetch: withFetch, https: withHttps, ws: withWs})[how]();

// Package server is the HTTP transport over internal/service: routes, streams, idempotency, tokens.
//
// # Guarantees
//
//   - Only the Unix socket works without a token; a TCP listener without tokens is refused. Tokens are compared in constant time.
//   - Every request's Host must be one that the server was told of, so that a web page cannot reach it through DNS rebinding.
//   - Every route names the least role that may use it; a route without one does not start.
//   - A POST with an Idempotency-Key happens once: the same key and body get the stored answer (Idempotency-Replayed: true), another
//     body 422 idempotency_mismatch, a request whose first copy is still in flight 409 idempotency_in_flight. A request that a crash
//     cut is made again: the backend recognises what it has done already. Only signals cannot be told apart; for those the answer is
//     409 idempotency_unknown. Answers of 5xx are not stored: the request may be made again.
//   - On an event stream only durable events carry an id, their seq. A reader that reconnects with the last id it saw gets every later
//     event exactly once. An unknown cursor is answered 400 before the stream starts.
//   - A client that goes away changes nothing: commands, turns and checkpoints go on.
//
// The server knows no SQL and no sandbox: it speaks to the Backend interfaces.
package server

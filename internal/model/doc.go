// Package model is how Perdure talks to language models: the Provider interface, its messages, its errors, and the retry rule.
//
// # Guarantees that every provider keeps (and modeltest checks)
//
//   - Chat returns one finished answer or an error; there are no half answers. Deltas before an error are void.
//   - A tool call whose arguments did not arrive whole (the token limit, a cut, invalid JSON) has Cut set, and its arguments
//     are then what arrived, as a JSON string. Such a call must never be run.
//   - Every tool call of an answer has an id that is unique within the conversation's message, a name, and arguments.
//   - Errors are *Error values with a Class; a provider never retries by itself (see Retry).
//   - When ctx ends, Chat returns soon, with class Canceled and the context's cause wrapped.
//   - Usage counts the whole request; Cached is a part of Input, not in addition to it.
//
// A provider's methods may be called at the same time. Implementations live below, in folders named after the API that they speak.
package model

package sqlite_test

import (
	"fmt"
	"sync"
	"testing"

	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/event/eventtest"
	"perdure.dev/perdure/internal/id"
)

// BenchmarkAppend appends durably, one event per call, with several calls in flight per session as an agent, its tools and
// its clients make them.
func BenchmarkAppend(b *testing.B) {
	for _, c := range []struct{ sessions, clients int }{{1, 1}, {50, 50}, {50, 400}} {
		b.Run(fmt.Sprintf("sessions=%d/clients=%d", c.sessions, c.clients), func(b *testing.B) {
			log := open(b, b.TempDir())
			ids := make([]id.Session, c.sessions)
			for i := range ids {
				ids[i] = eventtest.NewSession(b, log, fmt.Sprint("bench ", i))
			}
			text := string(make([]byte, 40)) + " a message of some two hundred bytes, which is what most events of a session come to when nobody reads a file"
			b.ResetTimer()
			var wg sync.WaitGroup
			for w := range c.clients {
				wg.Go(func() {
					for i := w; i < b.N; i += c.clients {
						a := event.Append{Session: ids[w%c.sessions], Expected: event.AnySeq, Events: []event.Draft{eventtest.User(text)}}
						if _, err := log.Append(b.Context(), a); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

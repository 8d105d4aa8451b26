package session

import (
	"bufio"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/client"
	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/event"
)

const (
	liveLines = 40 // of a command that are shown as it writes them
	lastLines = 4  // of what it writes after those that are shown when it has ended
	startPoll = 50 * time.Millisecond
	drainTime = 2 * time.Second // for the rest of the output of a command that has ended
	longLine  = 64 << 10        // bytes; a command that writes a longer one is shown when it has ended
)

// live shows what a tool's command writes while it runs.
type live struct {
	t      *transcript
	cancel context.CancelFunc
	done   chan struct{} // closed when both streams have been read to their ends, or cannot be

	mu    sync.Mutex // guards the fields below
	shown int        // lines
	more  int        // lines after them
	last  []string   // the last of those
	whole bool       // all that it wrote has been seen
}

// watch begins to show a command.
func (t *transcript) watch(ctx context.Context, c *client.Client, session, exec string) *live {
	ctx, cancel := context.WithCancel(ctx)
	l := &live{t: t, cancel: cancel, done: make(chan struct{}), whole: true}
	var streams sync.WaitGroup
	for _, name := range []string{"stdout", "stderr"} {
		streams.Go(func() { l.read(ctx, c, session, exec, name) })
	}
	go func() { // ends with both
		streams.Wait()
		close(l.done)
	}()
	return l
}

// read shows one stream to its end.
func (l *live) read(ctx context.Context, c *client.Client, session, exec, stream string) {
	for {
		r := c.Output(ctx, session, exec, stream, 0, true)
		lines := bufio.NewScanner(r)
		lines.Buffer(nil, longLine)
		for lines.Scan() {
			l.line(lines.Text())
		}
		r.Close()
		err := lines.Err()
		if errdefs.CodeOf(err) == "exec_not_found" { // that it is to start is logged before it does
			select {
			case <-time.After(startPoll):
				continue
			case <-ctx.Done():
			}
		}
		if err != nil {
			l.mu.Lock()
			l.whole = false
			l.mu.Unlock()
		}
		return
	}
}

func (l *live) line(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shown < liveLines {
		l.shown++
		l.t.part("%s", text)
		return
	}
	l.more++
	if l.last = append(l.last, text); len(l.last) > lastLines {
		l.last = l.last[1:]
	}
}

// end shows the rest of a command that has ended, and reports whether all of it has been shown or counted.
func (l *live) end() bool {
	late := time.NewTimer(drainTime)
	defer late.Stop()
	select {
	case <-l.done:
	case <-late.C: // it runs in the background
	}
	l.cancel()
	<-l.done
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.more > len(l.last) {
		l.t.part("… %d more lines", l.more-len(l.last))
	}
	for _, text := range l.last {
		l.t.part("%s", text)
	}
	return l.whole
}

// finished shows the end of a tool call. What its command wrote has been shown already if live did.
func (t *transcript) finished(d event.ToolFinishedData, live *live) {
	if live != nil && live.end() {
		if d.Outcome != event.OutcomeOK {
			t.part("%s %s", d.Outcome, d.Output[strings.LastIndexByte(strings.TrimSpace(d.Output), '\n')+1:])
		}
		return
	}
	if d.Outcome != event.OutcomeOK {
		t.part("%s", d.Outcome)
	}
	lines := strings.Split(strings.TrimSpace(d.Output), "\n")
	for i := 0; i < len(lines); i++ {
		if hidden := len(lines) - shownLines; i == shownLines-lastLines && hidden > 0 {
			t.part("… %d more lines", hidden)
			i += hidden
		}
		if lines[i] != "" {
			t.part("%s", lines[i])
		}
	}
}

// modelFailed tells of an attempt that failed, once for those that fail alike. The last one is told of when the turn has ended.
func (t *transcript) modelFailed(ev api.Event) {
	d := payload[event.ModelFailedData](ev)
	if text := fmt.Sprintf("! model: %s (%s); trying again", d.Message, d.Code); d.Retry && text != t.failure {
		t.failure = text
		t.line("%s", text)
	}
}

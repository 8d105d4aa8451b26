package demo

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"perdure.dev/perdure/internal/cli/env"
	"perdure.dev/perdure/internal/errdefs"
)

// Figures is what --json prints.
type Figures struct {
	OK        bool     `json:"ok"`
	Model     string   `json:"model"` // always "scripted"
	Driver    string   `json:"driver"`
	Isolation string   `json:"isolation"`
	Missing   []string `json:"missing"` // what the workspaces ran without
	Rows      int      `json:"rows"`
	Steps     []Step   `json:"steps"`
	Ways      []Way    `json:"ways"`
	Claims    []string `json:"claims"`         // all were checked
	Skipped   []string `json:"skipped"`        // what could not be shown here
	Kept      string   `json:"kept,omitempty"` // the data directory, with --keep
	TotalMS   float64  `json:"total_ms"`
}

// Step is a measured part of the story.
type Step struct {
	Name  string  `json:"name"`
	MS    float64 `json:"ms"`
	Bytes int64   `json:"bytes,omitempty"`
}

// Way is what one fork came to.
type Way struct {
	Session   string `json:"session"`
	Way       string `json:"way"`
	Rows      int    `json:"rows"`
	Dropped   int    `json:"dropped"`
	OwedCents int64  `json:"owed_cents"`
}

// teller writes the story as it happens.
type teller struct {
	e     *env.Env
	start time.Time
	style bool // the output is a terminal
	quiet bool
}

func newTeller(e *env.Env) teller {
	return teller{e: e, start: time.Now(), quiet: e.JSON, style: !e.JSON && e.Terminal.Out() && e.Getenv("NO_COLOR") == ""}
}

// hush ends the telling.
func (t *teller) hush() { t.quiet = true }

const textWidth = 150 // characters of a line that quotes something

// chapter begins a part.
func (t *teller) chapter(format string, args ...any) {
	if t.quiet {
		return
	}
	title := fmt.Sprintf(format, args...)
	if t.style {
		title = "\x1b[1m" + title + "\x1b[0m"
	}
	fmt.Fprintf(t.e.Out, "\n%s\n", title)
}

// say writes one line of the story, with the time since its start.
func (t *teller) say(format string, args ...any) {
	if !t.quiet {
		fmt.Fprintf(t.e.Out, "%6.1f s  %s\n", time.Since(t.start).Seconds(), env.Plain(fmt.Sprintf(format, args...)))
	}
}

// quote writes what a session or a file says, below the line before.
func (t *teller) quote(text string) {
	if t.quiet {
		return
	}
	for l := range strings.Lines(strings.TrimRight(text, "\n")) {
		fmt.Fprintf(t.e.Out, "          %s\n", t.faint(env.Plain(clip(strings.TrimRight(l, "\r\n")))))
	}
}

func (t *teller) faint(s string) string {
	if !t.style {
		return s
	}
	return "\x1b[2m" + s + "\x1b[0m"
}

func clip(s string) string {
	if r := []rune(s); len(r) > textWidth {
		return string(r[:textWidth-1]) + "…"
	}
	return s
}

// claim notes something that the story shows, or fails if it does not hold.
func (s *story) claim(holds bool, claim, found string, args ...any) error {
	if !holds {
		return errdefs.New(errdefs.Internal, "demo_claim_failed", "it does not hold that %s: %s", claim, fmt.Sprintf(found, args...))
	}
	s.fig.Claims = append(s.fig.Claims, claim)
	s.say("✓ %s", claim)
	return nil
}

// skip notes something that cannot be shown here.
func (s *story) skip(what string) {
	s.fig.Skipped = append(s.fig.Skipped, what)
	s.say("– skipped: %s", what)
}

// timed runs a step and notes how long it took. The step returns how many bytes it has to do with; 0 is none.
func (s *story) timed(name string, step func() (int64, error)) error {
	from := time.Now()
	n, err := step()
	took := time.Since(from)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	s.fig.Steps = append(s.fig.Steps, Step{Name: name, MS: ms(took), Bytes: n})
	if n > 0 {
		s.say("%s: %s, %s", name, seconds(ms(took)), env.Size(n))
	} else {
		s.say("%s: %s", name, seconds(ms(took)))
	}
	return nil
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func seconds(ms float64) string {
	if ms < 1000 {
		return fmt.Sprintf("%.0f ms", ms)
	}
	return fmt.Sprintf("%.1f s", ms/1000)
}

// table writes rows in columns, indented.
func table(w io.Writer, rows [][]string) {
	tw := tabwriter.NewWriter(w, 0, 8, 3, ' ', 0)
	for _, r := range rows {
		fmt.Fprintln(tw, "  "+strings.Join(r, "\t"))
	}
	tw.Flush()
}

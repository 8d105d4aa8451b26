package scripted

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"syscall"
	"time"

	"gopkg.in/yaml.v3"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/model"
)

// Script is a parsed file.
type Script struct {
	file          string
	ContextWindow int    `yaml:"context_window"` // tokens
	Strict        *bool  `yaml:"strict"`         // default true: nothing matches = an error
	Default       string `yaml:"default"`        // the answer when nothing matches and strict is false
	Turns         []Turn `yaml:"turns"`
}

// Turn is one rule with its answer. All given conditions must hold.
type Turn struct {
	line int
	When When `yaml:"when"`

	Text     string        `yaml:"text"`
	Thinking string        `yaml:"thinking"`
	Calls    []Call        `yaml:"calls"`
	Delay    time.Duration `yaml:"delay"`       // before the answer
	PerChunk time.Duration `yaml:"chunk_delay"` // between its words
	Stop     string        `yaml:"stop"`        // the stop reason; default: end or tool_calls
	Usage    Usage         `yaml:"usage"`
	Fail     *Failure      `yaml:"fail"`
}

// When holds the conditions of a turn.
type When struct {
	Step   int    `yaml:"step"`        // how many answers the conversation has, plus one
	User   *Match `yaml:"user"`        // the last user message
	Result *Match `yaml:"result"`      // the last tool result; does not hold when the last message is none
	Any    *Match `yaml:"any"`         // some message of the conversation
	Tool   string `yaml:"result_tool"` // the name of the tool whose result came last
	Last   string `yaml:"last"`        // the last message's role: user or tool
}

// Match is a condition on a text: a string that it contains, or a regular expression written as {regex: …}.
type Match struct {
	Contains string
	Regex    *regexp.Regexp
}

// Call is a tool call.
type Call struct {
	Name string    `yaml:"tool"`
	ID   string    `yaml:"id"`
	Args yaml.Node `yaml:"args"` // an object, whose strings are templates
	Raw  *string   `yaml:"raw_args"`
	Cut  bool      `yaml:"cut"` // deliver it as cut
}

// Usage are the token counts that an answer reports.
type Usage struct {
	Input  int64 `yaml:"input"`
	Output int64 `yaml:"output"`
	Cached int64 `yaml:"cached"`
}

// Failure makes a turn fail before it answers.
type Failure struct {
	Class      model.Class   `yaml:"class"`
	Times      int           `yaml:"times"` // 0: always
	RetryAfter time.Duration `yaml:"retry_after"`
	Message    string        `yaml:"message"`
}

// UnmarshalYAML reads a string or {regex: …}.
func (m *Match) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		m.Contains = n.Value
		return nil
	}
	var o struct {
		Contains string `yaml:"contains"`
		Regex    string `yaml:"regex"`
	}
	if err := n.Decode(&o); err != nil {
		return err
	}
	m.Contains = o.Contains
	if o.Regex == "" {
		return nil
	}
	re, err := regexp.Compile(o.Regex)
	if err != nil {
		return fmt.Errorf("line %d: %w", n.Line, err)
	}
	m.Regex = re
	return nil
}

// UnmarshalYAML notes the line of the turn and refuses unknown keys, which yaml.v3 does not do in custom decoders.
func (t *Turn) UnmarshalYAML(n *yaml.Node) error {
	type plain Turn
	var p plain
	b, err := yaml.Marshal(n)
	if err != nil {
		return err
	}
	d := yaml.NewDecoder(bytes.NewReader(b))
	d.KnownFields(true)
	if err := d.Decode(&p); err != nil {
		return fmt.Errorf("in the turn at line %d: %w", n.Line, err)
	}
	*t = Turn(p)
	t.line = n.Line
	return nil
}

// Load reads a script from a YAML or JSON file. Errors: script_not_found, script_invalid.
func Load(file string) (*Script, error) {
	b, err := read(file)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil, errdefs.New(errdefs.NotFound, "script_not_found", "there is no script %s", file).
				WithHint("scripted: takes the path of a YAML or JSON file; see docs/scripted.md")
		}
		return nil, &errdefs.Error{
			Kind: errdefs.Invalid, Code: "script_invalid", Message: "the script " + file + " cannot be read", Err: err, Hint: "it has to be a file that the daemon may read",
		}
	}
	return Parse(file, b)
}

// maxScript is how many bytes a script may have.
const maxScript = 16 << 20

// read reads a regular file. Anything else may have no end, or none for long: a device, or a FIFO that nobody writes to.
func read(file string) ([]byte, error) {
	f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, errors.New("it is no regular file")
	}
	b, err := io.ReadAll(io.LimitReader(f, maxScript+1))
	if err == nil && len(b) > maxScript {
		err = fmt.Errorf("it has more than %d bytes", maxScript)
	}
	return b, err
}

// Parse reads a script; file is its name for messages.
func Parse(file string, content []byte) (*Script, error) {
	s := &Script{file: filepath.Clean(file)}
	invalid := func(err error) error {
		e := errdefs.New(errdefs.Invalid, "script_invalid", "the script %s is wrong", s.file).WithHint("docs/scripted.md describes the format")
		e.Err = err
		return e
	}
	d := yaml.NewDecoder(bytes.NewReader(content))
	d.KnownFields(true)
	if err := d.Decode(s); err != nil && !errors.Is(err, io.EOF) {
		return nil, invalid(err)
	}
	if len(s.Turns) == 0 {
		return nil, invalid(errors.New("it has no turns"))
	}
	for _, t := range s.Turns {
		if err := t.check(); err != nil {
			return nil, invalid(fmt.Errorf("line %d: %w", t.line, err))
		}
	}
	return s, nil
}

func (t Turn) check() error {
	if t.Text == "" && len(t.Calls) == 0 && t.Fail == nil {
		return errors.New("a turn needs text, calls or fail")
	}
	for _, c := range t.Calls {
		if c.Name == "" {
			return errors.New("a call needs a tool")
		}
		if c.Raw != nil && c.Args.Kind != 0 {
			return errors.New("a call has args or raw_args, not both")
		}
	}
	if t.Fail != nil {
		switch t.Fail.Class {
		case model.RateLimited, model.Overloaded, model.Auth, model.BadRequest, model.ContextTooLong, model.Network:
		default:
			return fmt.Errorf("unknown failure class %q", t.Fail.Class)
		}
	}
	return nil
}

// arguments returns the call's arguments with their templates filled in.
func (c Call) arguments(fill func(string) (string, error)) (string, error) {
	if c.Raw != nil {
		return fill(*c.Raw)
	}
	if c.Args.Kind == 0 {
		return "{}", nil
	}
	var v any
	if err := c.Args.Decode(&v); err != nil {
		return "", err
	}
	v, err := fillValue(v, fill)
	if err != nil {
		return "", err
	}
	b, err := json.Marshal(v)
	return string(b), err
}

func fillValue(v any, fill func(string) (string, error)) (any, error) {
	var err error
	switch x := v.(type) {
	case string:
		return fill(x)
	case []any:
		for i := range x {
			if x[i], err = fillValue(x[i], fill); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		for k := range x {
			if x[k], err = fillValue(x[k], fill); err != nil {
				return nil, err
			}
		}
	}
	return v, nil
}

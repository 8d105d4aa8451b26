package server

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"os"
	"strings"

	"perdure.dev/perdure/internal/actor"
	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/id"
)

// TokensFile is the name of the tokens file in the data directory.
const TokensFile = "tokens"

// minToken is the least length of a token, in bytes: 128 bits in base64 or hex are longer.
const minToken = 20

// Token lets somebody use the API over TCP.
type Token struct {
	Name   id.Actor
	Role   actor.Role
	Secret string
}

func (t Token) check() error {
	switch {
	case t.Name == "":
		return errdefs.New(errdefs.Invalid, "bad_token", "a token has no name")
	case !t.Role.Valid():
		return errdefs.New(errdefs.Invalid, "bad_token", "token %s: there is no role %q", t.Name, t.Role).
			WithHint("The roles are viewer, approver, operator and admin.")
	case len(t.Secret) < minToken:
		return errdefs.New(errdefs.Invalid, "bad_token", "token %s is shorter than %d bytes", t.Name, minToken).
			WithHint("Make one with: openssl rand -hex 32")
	}
	return nil
}

// LoadTokens reads a tokens file: lines of NAME ROLE TOKEN; empty lines and lines that start with # are skipped. A missing
// file holds no tokens; one that others may read is an error (tokens_exposed).
func LoadTokens(path string) ([]Token, error) {
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err == nil && info.Mode().Perm()&0o077 != 0 {
		return nil, errdefs.New(errdefs.Denied, "tokens_exposed", "others may read or write %s", path).WithHint("chmod 600 %s", path)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, errdefs.Wrap(err, errdefs.Invalid, "bad_token", "reading the tokens")
	}
	return parseTokens(path, data)
}

func parseTokens(path string, data []byte) ([]Token, error) {
	var tokens []Token
	lines := bufio.NewScanner(bytes.NewReader(data))
	for n := 1; lines.Scan(); n++ {
		f := strings.Fields(lines.Text())
		if len(f) == 0 || strings.HasPrefix(f[0], "#") {
			continue
		}
		if len(f) != 3 {
			return nil, errdefs.New(errdefs.Invalid, "bad_token", "%s line %d is not NAME ROLE TOKEN", path, n)
		}
		t := Token{Name: id.Actor(f[0]), Role: actor.Role(f[1]), Secret: f[2]}
		if err := t.check(); err != nil {
			return nil, errdefs.Wrap(err, errdefs.Invalid, "bad_token", "%s line %d", path, n)
		}
		tokens = append(tokens, t)
	}
	return tokens, errdefs.Wrap(lines.Err(), errdefs.Invalid, "bad_token", "reading %s", path)
}

// authenticate finds the token. It compares digests, and all of them, so that the time taken tells nothing.
func authenticate(tokens []Token, secret string) (actor.Actor, bool) {
	got := sha256.Sum256([]byte(secret))
	var found actor.Actor
	ok := false
	for _, t := range tokens {
		want := sha256.Sum256([]byte(t.Secret))
		if subtle.ConstantTimeCompare(got[:], want[:]) == 1 {
			found, ok = actor.Actor{ID: t.Name, Role: t.Role}, true
		}
	}
	return found, ok
}

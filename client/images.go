package client

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/errdefs"
)

// Images lists the stored images.
func (c *Client) Images(ctx context.Context, page api.Page) (out api.List[api.Image], err error) {
	return out, c.do(ctx, call{method: http.MethodGet, path: "/images", query: pageQuery(page), out: &out})
}

// Image shows a stored image, by name or digest.
func (c *Client) Image(ctx context.Context, ref string) (out api.Image, err error) {
	return out, c.do(ctx, call{method: http.MethodGet, path: "/images/" + seg(ref), out: &out})
}

// DeleteImage takes a name from an image, and deletes the image with its last name.
func (c *Client) DeleteImage(ctx context.Context, ref string) error {
	return c.do(ctx, call{method: http.MethodDelete, path: "/images/" + seg(ref)})
}

// PullImage brings an image from a registry. progress, if not nil, hears how far it is. A pull that a connection's end has cut is asked for again: what is
// there is not sent twice.
func (c *Client) PullImage(ctx context.Context, in api.PullImage, progress func(api.PullProgress)) (api.Image, error) {
	body, err := json.Marshal(in)
	if err != nil {
		return api.Image{}, errdefs.Wrap(err, errdefs.Internal, "internal", "encoding the request")
	}
	try := c.newRetry()
	for {
		img, err := c.followPull(ctx, body, try, progress)
		if err == nil {
			return img, nil
		}
		if err := try.again(ctx, err); err != nil {
			return api.Image{}, err
		}
	}
}

// followPull reads one stream of a pull.
func (c *Client) followPull(ctx context.Context, body []byte, try *retry, progress func(api.PullProgress)) (out api.Image, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url("/images:pull", nil), bytes.NewReader(body))
	if err != nil {
		return out, errdefs.Wrap(err, errdefs.Invalid, "invalid_request", "making the request")
	}
	c.authorize(req.Header)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "text/event-stream")
	res, err := c.send(req)
	if err != nil {
		return out, err
	}
	defer res.Body.Close()
	try.ok()
	d := newDecoder(res.Body)
	for {
		m, err := d.next()
		if err != nil {
			return out, broken(err)
		}
		switch m.event {
		case api.PullProgressEvent:
			var p api.PullProgress
			if json.Unmarshal(m.data, &p) == nil && progress != nil {
				progress(p)
			}
		case api.PullDoneEvent:
			return out, errdefs.Wrap(json.Unmarshal(m.data, &out), errdefs.Internal, "bad_answer", "reading an image")
		case api.ErrorEvent:
			var p api.Problem
			if err := json.Unmarshal(m.data, &p); err != nil {
				return out, errdefs.Wrap(err, errdefs.Internal, "bad_answer", "reading an error")
			}
			return out, p.Err()
		}
	}
}

// ImportImage takes an image from an archive; name may be empty. It is not repeated when the connection breaks.
func (c *Client) ImportImage(ctx context.Context, name string, archive io.Reader) (out api.Image, err error) {
	q := url.Values{}
	if name != "" {
		q.Set("name", name)
	}
	return out, c.putFor(ctx, "/images", q, "application/octet-stream", archive, &out)
}

package firestore

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math"
	"math/rand/v2"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"cloud.google.com/go/firestore"
	apiv1 "cloud.google.com/go/firestore/apiv1"
	"cloud.google.com/go/firestore/apiv1/firestorepb"
	"github.com/googleapis/gax-go/v2"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

const (
	// targetsPerStream is how many targets share a stream, and maxStreams how many streams there are: the database takes
	// 100 on a connection, and those that end take a moment.
	targetsPerStream = 100
	maxStreams       = 80

	listenBackoff = time.Second // after a stream's failure; doubles up to listenMaxWait
	listenMaxWait = 30 * time.Second
)

// keepAlive finds out that a connection is dead on which nothing has to be sent.
var keepAlive = keepalive.ClientParameters{Time: 2 * time.Minute}

var (
	errTooManyTargets = errors.New("too much is watched at the same time")
	errTargetRemoved  = errors.New("the database has ended a listener")
	errSlow           = errors.New("listening did not begin in time a moment ago")
)

// The client of the package firestore opens a stream for every listener, and keeps the documents that it tells of. Here
// all listeners of a process share a few streams, each target is listened to once, however many wait for it, and nothing
// is kept: that something has changed is all that anybody wants to know.
type listening struct {
	database string
	emulated bool
	opts     []option.ClientOption
	most     int // streams

	dialing sync.Mutex
	client  *apiv1.Client // nil before the first stream

	mu      sync.Mutex
	streams []*stream
	targets map[string]*target // by the names of their documents
	began   time.Time          // when listening to a target has begun, of the last one
	resumes time.Time          // when a watch may be tried again, after one that the database had nothing to say to
}

// A watch is somebody who waits for changes of some targets.
type watch struct {
	targets []*target
	began   chan error    // gets one for each target
	pending chan struct{} // has room for one: more changes, before the first has been told, are the same one
	lost    chan struct{} // the same, for that changes are not told
}

func newWatch(targets int) *watch {
	return &watch{began: make(chan error, targets), pending: make(chan struct{}, 1), lost: make(chan struct{}, 1)}
}

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// A target is a document that a stream listens to.
type target struct {
	key     string
	pb      *firestorepb.Target
	stream  *stream
	current bool            // what comes now is a change
	failed  int             // how often in a row
	watches map[*watch]bool // false: listening has not begun for it
}

// A stream is one call of the database's method Listen, made anew when it breaks. It lives while it has targets.
type stream struct {
	l       *listening
	stop    context.CancelFunc
	targets map[int32]*target
	lastID  int32
	unsent  []*firestorepb.ListenRequest
	wake    chan struct{} // has an element while unsent may have some
	down    error         // why there is no stream now, while it waits to be opened again
}

func newListening(client *firestore.Client, opts []option.ClientOption) *listening {
	database, _, _ := strings.Cut(client.Collection("c").Path, "/documents/")
	return &listening{
		database: database, emulated: client.UsesEmulator, opts: opts, most: maxStreams, targets: map[string]*target{},
	}
}

func (l *listening) close() error {
	l.dialing.Lock()
	defer l.dialing.Unlock()
	if l.client == nil {
		return nil
	}
	return l.client.Close()
}

// join has a watch told of the changes of targets: of all, or it fails, because there is no room or no stream to be had at
// present.
func (l *listening) join(w *watch, targets map[string]*firestorepb.Target) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Now().Before(l.resumes) {
		return errSlow
	}
	more := 0
	for key := range targets {
		switch t := l.targets[key]; {
		case t == nil:
			more++
		case t.stream.down != nil:
			return t.stream.down
		}
	}
	if err := l.room(more); err != nil {
		return err
	}
	for key, pb := range targets {
		t := l.targets[key]
		if t == nil {
			s := l.place()
			pb.TargetId = s.newID()
			t = &target{key: key, pb: pb, stream: s, watches: map[*watch]bool{}}
			l.targets[key] = t
			s.targets[pb.GetTargetId()] = t
			s.send(s.add(t))
		}
		if t.watches[w] = t.current; t.current {
			w.began <- nil
		}
		w.targets = append(w.targets, t)
	}
	return nil
}

// room says whether there is a place for more targets, and if not why. Where no stream works, a new one would not either.
func (l *listening) room(more int) error {
	var down error
	works, free := false, (l.most-len(l.streams))*targetsPerStream
	for _, s := range l.streams {
		if s.down != nil {
			down = s.down
			continue
		}
		works = true
		free += targetsPerStream - len(s.targets)
	}
	switch {
	case more > 0 && down != nil && !works:
		return down
	case more > free:
		return errTooManyTargets
	}
	return nil
}

// place gives a stream that takes one more target, where there is room.
func (l *listening) place() *stream {
	for _, s := range l.streams {
		if s.down == nil && len(s.targets) < targetsPerStream {
			return s
		}
	}
	ctx, stop := context.WithCancel(context.Background()) // it serves many, and ends with the last of them
	s := &stream{l: l, stop: stop, targets: map[int32]*target{}, wake: make(chan struct{}, 1)}
	l.streams = append(l.streams, s)
	go s.run(ctx)
	return s
}

// slow notes that a watch has waited in vain since then. No other is tried for a while, unless the database has answered
// somebody meanwhile: then it was only too much that was asked for.
func (l *listening) slow(since time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.began.Before(since) {
		l.resumes = time.Now().Add(slowFor)
	}
}

func (l *listening) leave(w *watch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range w.targets {
		if delete(t.watches, w); len(t.watches) > 0 {
			continue
		}
		s, id := t.stream, t.pb.GetTargetId()
		delete(l.targets, t.key)
		delete(s.targets, id)
		s.send(&firestorepb.ListenRequest{
			Database: l.database, TargetChange: &firestorepb.ListenRequest_RemoveTarget{RemoveTarget: id},
		})
		if len(s.targets) == 0 {
			l.streams = slices.DeleteFunc(l.streams, func(other *stream) bool { return other == s })
			s.stop()
		}
	}
	w.targets = nil
}

// newID gives a number above zero that no target of the stream has.
func (s *stream) newID() int32 {
	for {
		s.lastID = s.lastID%math.MaxInt32 + 1
		if s.targets[s.lastID] == nil {
			return s.lastID
		}
	}
}

func (s *stream) add(t *target) *firestorepb.ListenRequest {
	return &firestorepb.ListenRequest{
		Database: s.l.database, TargetChange: &firestorepb.ListenRequest_AddTarget{AddTarget: t.pb},
	}
}

// send has requests sent, in their order. The lock is held.
func (s *stream) send(requests ...*firestorepb.ListenRequest) {
	s.unsent = append(s.unsent, requests...)
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// run keeps the stream open until ctx ends.
func (s *stream) run(ctx context.Context) {
	backoff := listenBackoff
	for {
		began := time.Now()
		err := s.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > listenMaxWait { // the database ends streams now and then: nothing is wrong
			backoff = listenBackoff
			s.broke(nil)
			continue
		}
		s.broke(err)
		timer := time.NewTimer(backoff/2 + rand.N(backoff/2))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		backoff = min(2*backoff, listenMaxWait)
	}
}

// broke notes that nothing is told at present, and with an error that the targets have failed.
func (s *stream) broke(err error) {
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	s.down = err
	for _, t := range s.targets {
		t.current = false
		if err != nil {
			t.fail(err)
		}
	}
}

// fail tells those that wait for their beginning that there is none, and the others that they are not told of changes: not
// the first time, streams break now and then.
func (t *target) fail(err error) {
	t.failed++
	for w, begun := range t.watches {
		switch {
		case !begun:
			t.watches[w] = true
			w.began <- err
		case t.failed > 1:
			signal(w.lost)
		}
	}
}

// follow opens the stream, adds all targets and passes on what the database tells, until it breaks.
func (s *stream) follow(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	rpc, err := s.open(ctx)
	if err != nil {
		return err
	}
	sender := make(chan struct{})
	go func() {
		defer close(sender)
		s.sendAll(ctx, rpc)
	}()
	defer func() { stop(); <-sender }()
	for {
		response, err := rpc.Recv()
		if err != nil {
			return err
		}
		if err := s.receive(response); err != nil {
			return err
		}
	}
}

func (s *stream) open(ctx context.Context) (firestorepb.Firestore_ListenClient, error) {
	client, err := s.l.connect()
	if err != nil {
		return nil, err
	}
	ctx = metadata.AppendToOutgoingContext(ctx,
		"google-cloud-resource-prefix", s.l.database,
		"x-goog-request-params", "database="+url.QueryEscape(s.l.database))
	if s.l.emulated {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer owner") // whatever rules it has been given
	}
	rpc, err := client.Listen(ctx, gax.WithRetry(func() gax.Retryer { return nil })) // whoever waits looks for itself meanwhile
	if err != nil {
		return nil, err
	}
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	s.down, s.unsent = nil, nil
	for _, t := range s.targets {
		s.send(s.add(t))
	}
	return rpc, nil
}

// connect gives the client that the streams are opened with. It has a connection of its own, so that streams take no
// place of the calls.
func (l *listening) connect() (*apiv1.Client, error) {
	l.dialing.Lock()
	defer l.dialing.Unlock()
	if l.client != nil {
		return l.client, nil
	}
	opts := l.opts
	if l.emulated {
		opts = append([]option.ClientOption{
			option.WithEndpoint("passthrough:///" + strings.TrimPrefix(os.Getenv("FIRESTORE_EMULATOR_HOST"), "http://")),
			option.WithoutAuthentication(),
			option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())),
		}, opts...)
	}
	opts = append([]option.ClientOption{option.WithGRPCDialOption(grpc.WithKeepaliveParams(keepAlive))}, opts...)
	client, err := apiv1.NewClient(context.Background(), opts...) // it fetches tokens for as long as it lives
	if err != nil {
		return nil, err
	}
	l.client = client
	return client, nil
}

func (s *stream) sendAll(ctx context.Context, rpc firestorepb.Firestore_ListenClient) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		}
		s.l.mu.Lock()
		requests := s.unsent
		s.unsent = nil
		s.l.mu.Unlock()
		for _, request := range requests {
			if rpc.Send(request) != nil {
				return // the one that receives knows why
			}
		}
	}
}

// receive signals what a response tells. What it tells of documents before their target is current was there before.
func (s *stream) receive(response *firestorepb.ListenResponse) error {
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	var changed []int32
	switch r := response.GetResponseType().(type) {
	case *firestorepb.ListenResponse_TargetChange:
		return s.targetChange(r.TargetChange)
	case *firestorepb.ListenResponse_DocumentChange:
		changed = slices.Concat(r.DocumentChange.GetTargetIds(), r.DocumentChange.GetRemovedTargetIds())
	case *firestorepb.ListenResponse_DocumentDelete:
		changed = r.DocumentDelete.GetRemovedTargetIds()
	case *firestorepb.ListenResponse_DocumentRemove:
		changed = r.DocumentRemove.GetRemovedTargetIds()
	}
	for _, id := range changed {
		if t := s.targets[id]; t != nil && t.current {
			for w := range t.watches {
				signal(w.pending)
			}
		}
	}
	return nil
}

func (s *stream) targetChange(change *firestorepb.TargetChange) error {
	ids := change.GetTargetIds()
	if len(ids) == 0 {
		ids = slices.Collect(maps.Keys(s.targets))
	}
	for _, id := range ids {
		t := s.targets[id]
		if t == nil { // nobody waits for it any more
			continue
		}
		switch change.GetTargetChangeType() {
		case firestorepb.TargetChange_CURRENT:
			t.begin()
		case firestorepb.TargetChange_RESET:
			t.current = false
		case firestorepb.TargetChange_REMOVE:
			return cmp.Or(status.FromProto(change.GetCause()).Err(), errTargetRemoved)
		}
	}
	return nil
}

// begin tells those that wait for it that listening has begun, and the others that they may have missed something.
func (t *target) begin() {
	again := !t.current
	t.current, t.failed, t.stream.l.began = true, 0, time.Now()
	for w, begun := range t.watches {
		switch {
		case !begun:
			t.watches[w] = true
			w.began <- nil
		case again:
			signal(w.pending)
		}
	}
}

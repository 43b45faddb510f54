// A guest of guests_test.py, of grpc-go: asks as fast as it can, by 64 calls at once and then by 64 streams.
//
//	go_guest ADDRESS FILE SECONDS
//
// FILE has the bytes of a ComputeActionsRequest. For each kind it prints how many answers it got, and how often it heard what else.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
)

// Bytes as they are, so that no generated code is needed.
type raw struct{}

func (raw) Marshal(value interface{}) ([]byte, error) { return *value.(*[]byte), nil }
func (raw) Unmarshal(data []byte, value interface{}) error {
	*value.(*[]byte) = append([]byte(nil), data...)
	return nil
}
func (raw) Name() string { return "proto" }

func ask(ctx context.Context, connection *grpc.ClientConn, request *[]byte) error {
	var reply []byte
	return connection.Invoke(ctx, "/troupe.v1.Query/ComputeActions", request, &reply, grpc.ForceCodec(raw{}))
}

// Asks on one stream until then.
func stream(ctx context.Context, connection *grpc.ClientConn, request *[]byte, until time.Time, answered func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	both := &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}
	stream, err := connection.NewStream(ctx, both, "/troupe.v1.Query/StreamActions", grpc.ForceCodec(raw{}))
	for err == nil && time.Now().Before(until) {
		var reply []byte
		if err = stream.SendMsg(request); err == nil {
			err = stream.RecvMsg(&reply)
		}
		if err == nil {
			answered()
		}
	}
	return err
}

func main() {
	if len(os.Args) != 4 {
		log.Fatal("go_guest ADDRESS FILE SECONDS")
	}
	request, err := os.ReadFile(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	seconds, err := strconv.ParseFloat(os.Args[3], 64)
	if err != nil {
		log.Fatal(err)
	}
	for _, kind := range []string{"calls", "streams"} {
		connection, err := grpc.Dial(os.Args[1], grpc.WithInsecure())
		if err != nil {
			log.Fatal(err)
		}
		until := time.Now().Add(time.Duration(seconds * float64(time.Second)))
		ctx, cancel := context.WithDeadline(context.Background(), until.Add(20*time.Second))
		heard := map[string]int{}
		var lock sync.Mutex
		note := func(what string) {
			lock.Lock()
			heard[what]++
			lock.Unlock()
		}
		var running sync.WaitGroup
		for i := 0; i < 64; i++ {
			running.Add(1)
			go func() {
				defer running.Done()
				for time.Now().Before(until) {
					var err error
					if kind == "calls" {
						if err = ask(ctx, connection, &request); err == nil {
							note("answer")
						}
					} else {
						err = stream(ctx, connection, &request, until, func() { note("answer") })
					}
					if err != nil {
						note(err.Error())
					}
				}
			}()
		}
		running.Wait()
		cancel()
		connection.Close()
		fmt.Println(kind, heard)
	}
}

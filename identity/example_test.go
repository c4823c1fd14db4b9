package identity_test

import (
	"context"
	"log"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/hydrant-mcp/hydrant/handler"
	"github.com/hydrant-mcp/hydrant/identity"
	"github.com/hydrant-mcp/hydrant/store/memory"
)

// An endpoint that takes the tokens of one issuer, and tells clients without one where to get it.
func ExampleJWT() {
	ctx := context.Background()
	verifier, err := identity.JWT(ctx, identity.JWTOptions{
		Issuer:    "https://auth.example",
		Audiences: []string{"https://mcp.example/mcp"},
	})
	if err != nil {
		log.Fatal(err)
	}
	resource, err := identity.ProtectedResource(identity.ResourceOptions{
		BaseURL:              "https://mcp.example",
		AuthorizationServers: []string{"https://auth.example"},
		Scopes:               []string{"notes:read", "notes:write"},
	})
	if err != nil {
		log.Fatal(err)
	}
	server := mcp.NewServer(&mcp.Implementation{Name: "notes", Version: "1.0.0"}, nil)
	endpoint := handler.New(server, memory.New(), &handler.Options{
		Verifier:         verifier,
		ResourceMetadata: resource.MetadataURL,
		ToolScopes: func(tool string) []string {
			return map[string][]string{"add_note": {"notes:write"}}[tool]
		},
	})
	log.Fatal(http.ListenAndServe("127.0.0.1:8080", resource.Wrap(endpoint)))
}

// A Cloud Run service with IAP in front of it.
func ExampleIAP() {
	identify, err := identity.IAP(context.Background(), identity.IAPOptions{
		Audience: "/projects/123456789/locations/europe-west1/services/notes",
	})
	if err != nil {
		log.Fatal(err)
	}
	server := mcp.NewServer(&mcp.Implementation{Name: "notes", Version: "1.0.0"}, nil)
	_ = handler.New(server, memory.New(), &handler.Options{Identify: identify})
}

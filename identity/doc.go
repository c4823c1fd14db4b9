// Package identity finds out who is asking: it checks bearer tokens that are JWTs, tells clients where to get one, and
// takes the identities that platforms have verified.
//
//	verifier, err := identity.JWT(ctx, identity.JWTOptions{
//		Issuer:    "https://auth.example",
//		Audiences: []string{"https://mcp.example/mcp"},
//	})
//	resource, err := identity.ProtectedResource(identity.ResourceOptions{
//		Path:                 "/mcp",
//		BaseURL:              "https://mcp.example",
//		AuthorizationServers: []string{"https://auth.example"},
//	})
//	h := resource.Wrap(handler.New(server, store, &handler.Options{
//		Verifier:         verifier,
//		ResourceMetadata: resource.MetadataURL,
//	}))
//
// A principal is an issuer and a subject. [JWT] takes both from the token; [IAP] takes them from the header that
// Google's Identity-Aware Proxy signs; package awsidentity takes them from what API Gateway and Function URLs say.
// Functions of the latter kind go into handler.Options.Identify. All are off unless they are configured, and none
// believes a header that a stranger can send.
//
// # Errors
//
// An error that is auth.ErrInvalidToken is about the credentials: 401, and the client gets new ones. Any other error
// says that they could not be checked: 5xx, and the client keeps them. No error contains any part of a token.
package identity

// RUN: distir-opt %s -p 'project-to-rank{rank=0}' | filecheck %s

// A stream stays as a property of the ops that run on it, a move becomes a wait, and a root that receives on another
// stream than it sends from waits there.

// CHECK: func.func @main
func.func @main(%a: tensor<4xf32, #dist.on<0>>, %b: tensor<4xf32, #dist.on<1>>) {
  // CHECK-NEXT: [[C:%.*]] = rank.wait %a on "comm" : tensor<4xf32>
  %c = dist.move %a : tensor<4xf32, #dist.on<0>> -> tensor<4xf32, #dist.on<0, "comm">>
  // CHECK-NEXT: [[D:%.*]] = rank.allreduce sum [[C]] group [0, 1] {rank.stream = "comm"} : tensor<4xf32>
  %d, %e = dist.allreduce sum %c, %b : (tensor<4xf32, #dist.on<0, "comm">>, tensor<4xf32, #dist.on<1>>) -> (tensor<4xf32, #dist.on<0, "comm">>, tensor<4xf32, #dist.on<1>>)
  // CHECK-NEXT: [[F:%.*]] = dist.scale [[D]] by 1/2 {rank.stream = "comm"} : tensor<4xf32>
  %f = dist.scale %d by 1/2 : tensor<4xf32, #dist.on<0, "comm">>
  // CHECK-NEXT: [[G:%.*]] = rank.wait [[F]] on "" : tensor<4xf32>
  %g = dist.move %f : tensor<4xf32, #dist.on<0, "comm">> -> tensor<4xf32, #dist.on<0>>
  // CHECK-NEXT: [[H:%.*]] = rank.broadcast [[G]] root 0 group [0, 1] : (tensor<4xf32>) -> tensor<4xf32>
  // CHECK-NEXT: = rank.wait [[H]] on "comm" : tensor<4xf32>
  %h, %i = dist.broadcast %g to [0, 1] : (tensor<4xf32, #dist.on<0>>) -> (tensor<4xf32, #dist.on<0, "comm">>, tensor<4xf32, #dist.on<1>>)
  // CHECK-NEXT: func.return
  func.return
}

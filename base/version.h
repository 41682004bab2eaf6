/*
 * The version of the platform: of every program built from this tree.
 */
#ifndef BASE_VERSION_H
#define BASE_VERSION_H

#define PLATFORM_VERSION "0.1.0"

#endif
